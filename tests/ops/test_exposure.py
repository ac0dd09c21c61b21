"""Who reaches a server that asks nobody who they are. As whole programs, with what they print: `test_startup.py`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner
from mcp.server.auth.settings import AuthSettings
from pydantic import AnyHttpUrl

from perdure import Tasks, serve
from perdure.ops import exposure
from perdure.ops.cli import main
from perdure.store.memory import MemoryStore
from perdure.wire.identity import ANONYMOUS
from tests.wire.test_identity import Verifier

THIS_MACHINE: Final = ["127.0.0.1", "127.8.9.10", "::1", "localhost"]
THE_NETWORK: Final = [
    *("0.0.0.0", "::", "", "192.0.2.7", "2001:db8::7", "::ffff:192.0.2.7", "example.com", "localhost.example.com"),
    *("127.0.0.1.example.com", "0", "127.1", "2130706433"),  # some of these are loopback, and need not be written so
]
PROGRAM: Final = "from perdure import Tasks\ntasks = Tasks('sqlite:///tasks.db')\nmcp = tasks.server('open')\n"


def made(store: Any = "sqlite:///tasks.db", **options: Any) -> Any:
    return Tasks(store).server("open", **options)


@pytest.mark.parametrize("host", THIS_MACHINE)
def test_this_machine_is_what_a_server_without_authentication_may_listen_on(host: str) -> None:
    exposure.refuse(made(MemoryStore()), host, allowed=False, say="so")


@pytest.mark.parametrize("host", THE_NETWORK)
def test_anything_else_is_refused_unless_somebody_says_so(host: str) -> None:
    app = made(MemoryStore())
    with pytest.raises(SystemExit, match=r"open has no authentication, .*, or say so$"):
        exposure.refuse(app, host, allowed=False, say="so")
    exposure.refuse(app, host, allowed=True, say="so")


@pytest.mark.parametrize("host", THE_NETWORK)
def test_a_server_with_authentication_may_listen_on_anything_and_nothing_is_said(
    host: str, capsys: pytest.CaptureFixture[str]
) -> None:
    auth = AuthSettings(
        issuer_url=AnyHttpUrl("https://id.example"), resource_server_url=None, validate_token_resource=False
    )
    app = made(MemoryStore(), auth=auth, token_verifier=Verifier())
    exposure.refuse(app, host, allowed=False, say="so")
    exposure.warn(app)
    assert capsys.readouterr() == ("", "")


def test_who_says_whose_requests_are_by_a_function_is_told_that_nothing_else_does(
    capsys: pytest.CaptureFixture[str],
) -> None:
    tasks = Tasks(MemoryStore(), identify=lambda _: ANONYMOUS)
    app = tasks.server("named")
    exposure.warn(app)
    assert capsys.readouterr().err == "perdure: no authentication but by identify=, which alone says whose a task is\n"


def by_the_command() -> None:
    Path("program.py").write_text(PROGRAM)
    done = CliRunner().invoke(main, ["serve", "program.py:mcp", "--host", "0.0.0.0"], standalone_mode=False)
    assert done.exception is not None
    raise done.exception


DOORS: Final[dict[str, Callable[[], Any]]] = {
    "perdure serve": by_the_command,
    "perdure.serve": lambda: serve(made(), ["--host", "0.0.0.0"]),
    "mcp.run": lambda: made().run("streamable-http", host="0.0.0.0"),
    "mcp.run, as revision 2024-11-05 has it": lambda: made().run("sse", host="0.0.0.0"),
}


@pytest.mark.parametrize("door", DOORS)
def test_every_way_to_start_a_server_looks_before_it_opens_anything(
    door: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match=r"anybody who reaches 0\.0\.0\.0 could call it: configure auth="):
        DOORS[door]()
    assert {path.name for path in tmp_path.iterdir()} <= {"program.py", "__pycache__"}
