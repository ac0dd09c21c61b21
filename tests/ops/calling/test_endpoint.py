"""Servers, tokens and the journal: which is which, and where a secret may go."""

import stat
from contextlib import closing
from pathlib import Path

import click
import pytest
from anyio.from_thread import start_blocking_portal
from click.testing import CliRunner
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from perdure.client import Journal
from perdure.ops.calling import book
from perdure.ops.calling.endpoint import TOKEN, TOKEN_FILE, Access, HttpEndpoint, StdioEndpoint, parse_name, parse_url
from perdure.ops.calling.typed import Unfit
from perdure.ops.cli import main
from tests.ops.calling.shell import run
from tests.wire.support import hosting

HERE = HttpEndpoint("http://127.0.0.1:8000/mcp")


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (TOKEN, TOKEN_FILE, book.JOURNAL):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.mark.parametrize(
    "url", ["https://a.example/mcp", "http://localhost:1/mcp", "http://127.8.8.8/mcp", "http://[::1]:8000/mcp"]
)
def test_a_token_goes_over_https_and_to_this_machine(url: str) -> None:
    assert Access("secret").headers(parse_url(url)) == {"Authorization": "Bearer secret"}


@pytest.mark.parametrize("url", ["http://a.example/mcp", "http://127.0.0.1.example/mcp", "http://10.0.0.1/mcp"])
def test_a_token_goes_nowhere_else_unless_told(url: str) -> None:
    with pytest.raises(Unfit, match="plain http") as error:
        Access("secret").headers(parse_url(url))
    assert "secret" not in str(error.value)
    assert Access("secret", over_http=True).headers(parse_url(url)) == {"Authorization": "Bearer secret"}
    assert Access(None).headers(parse_url(url)) == {}


def test_a_token_is_in_a_file_or_the_environment_and_never_shown(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text("of-the-file\n")
    monkeypatch.setenv(TOKEN, "of-the-environment")
    assert Access.found(None, over_http=False).headers(HERE) == {"Authorization": "Bearer of-the-environment"}
    assert Access.found(str(file), over_http=False).headers(HERE) == {"Authorization": "Bearer of-the-file"}
    monkeypatch.setenv(TOKEN_FILE, str(file))
    found = Access.found(None, over_http=False)
    assert found.token == "of-the-file"
    assert "of-the-file" not in repr(found)


@pytest.mark.parametrize("said", ["two words", "two\nlines", "a\x1bb", "ü"])
def test_what_can_be_no_token_is_refused_without_showing_it(said: str, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(said)
    with pytest.raises(Unfit) as error:
        Access.found(str(file), over_http=False)
    assert said not in str(error.value)
    with pytest.raises(Unfit, match="can't be read"):
        Access.found(str(tmp_path / "none"), over_http=False)


def test_a_file_without_a_token_is_not_a_command_without_one(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(" \n")
    with pytest.raises(Unfit, match="holds no token: it is empty"):
        Access.found(str(file), over_http=False)


@pytest.mark.parametrize(
    "url", ["a.example/mcp", "ftp://a/mcp", "http://", "http://[", "http://a\x1b[2J/", "http://a:x/"]
)
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(Unfit, match="is no URL of a server"):
        parse_url(url)


@pytest.mark.parametrize(
    "url",
    [
        "https://ada:hush@a.example/mcp",
        "https://a.example/mcp?api_key=hush",
        "https://a.example/mcp?a=1&accessToken=hush",
        "https://a.example/mcp?sig=hush#top",
    ],
)
def test_a_url_with_a_secret_in_it_is_refused(url: str) -> None:
    with pytest.raises(Unfit, match="put the secret into PERDURE_TOKEN") as error:
        parse_url(url)
    assert "hush" not in str(error.value)


@pytest.mark.parametrize("query", ["tenant=7", "author=ada", "monkey=7", "design=2", "key=", "keyword=a"])
def test_what_only_looks_a_little_like_a_secret_is_none(query: str) -> None:
    assert parse_url(f"https://a.example/mcp?{query}").shown == f"https://a.example/mcp?{query}"


def test_a_server_is_found_again_by_its_name() -> None:
    program = StdioEndpoint(("python", "my server.py", "--x=$y"), "/home/ada/my project")
    assert parse_name(program.name) == program
    assert parse_name(HERE.name) == HERE
    for name in ("stdio:", "stdio:python server.py", "stdio:'", "name:wire"):
        with pytest.raises(Unfit):
            parse_name(name)


def test_the_journal_is_the_users_own(tmp_path: Path) -> None:
    book.opened(None).close()
    file = tmp_path / "state" / "perdure" / "handles.db"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    with pytest.raises(Unfit, match="there is no folder"):
        book.opened(str(tmp_path / "nowhere" / "j.db"))


def test_the_beginning_of_an_id_is_enough_if_only_one_has_it(tmp_path: Path) -> None:
    with closing(Journal(tmp_path / "j.db")) as gone:
        for server, task in (("http://a/", "tsk_abc"), ("http://a/", "tsk_abd"), ("http://b/", "tsk_x")):
            gone.adopt(server, "tool", task)
        unsure, _ = gone.intend("http://a/", "tool", "my-key", {})
    journal = Journal(tmp_path / "j.db")
    records = journal.records()
    assert book.find(records, "tsk_abc").task_id == "tsk_abc"
    assert book.find(records, "tsk_x").server == "http://b/"
    assert book.find(records, "my").key == "my-key"
    assert book.newest_open(records, journal) == unsure
    for wanted, reason in (("tsk_ab", "may be tsk_abc at http://a/, tsk_abd"), ("", "knows no"), ("y", "knows no")):
        with pytest.raises(Unfit, match=reason):
            book.find(records, wanted)
    journal.close()


def test_a_call_that_another_process_is_making_is_not_the_newest_that_is_open(tmp_path: Path) -> None:
    mine, other = Journal(tmp_path / "j.db"), Journal(tmp_path / "j.db")
    task = mine.adopt("http://a/", "tool", "tsk_mine")
    call, _ = other.intend("http://a/", "tool", "theirs", {})
    assert book.newest_open(mine.records(), mine) == task
    other.close()
    assert book.newest_open(mine.records(), mine) == call, "nobody is making it any more"
    mine.close()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("call tool a=1", "Say which server: URL first, or -- COMMAND last."),
        ("tools 127.0.0.1:8742/mcp", "did you mean http://127.0.0.1:8742/mcp?"),
        ("call a.example/mcp tool", "did you mean https://a.example/mcp?"),
        ("call localhost:80 tool", "did you mean http://localhost:80?"),
        ("tools ftp://127.0.0.1/x", "http or https: ftp://127.0.0.1/x"),
        ("resume postgresql://ada:hush@h/db", "the journal knows no task …"),
        ("tools http://a.example/mcp?token=hush", "a URL is there for all to see"),
        ("tools http://a.example/mcp http://b/?token=hush", "There is more than a server: http://b/?token=…"),
        ("call http://127.0.0.1:1/mcp tool -- python", "Say which server once"),
        ("call tool --", "After -- comes the command"),
        ("call ftp://a/mcp tool", "is no URL of a server"),
        ("call http://a.example/mcp tool --timeout soon", "'soon' is no duration"),
        ("call http://a.example/mcp tool --arguments /no/such", "/no/such can't be read"),
        ("answer tsk_1 a=1 --decline", "Say fields or --decline, not both."),
        ("resume", "the journal has no task that is open"),
        ("watch", "the journal has no task that is open"),
        ("resume tsk_1", "the journal knows no task 'tsk_1'"),
        ("cancel tsk_1 --server nowhere", "is no URL of a server"),
        ("tools http://a.example/mcp more", "There is more than a server: more"),
        ("ls --journal /no/such/folder/j.db", "there is no folder /no/such/folder"),
    ],
)
def test_what_can_not_be_meant_is_a_usage_error(words: str, reason: str) -> None:
    done = CliRunner().invoke(main, words.split())
    assert done.exit_code == 2, done.output
    assert reason in done.output
    assert "hush" not in done.output


def test_a_token_for_several_servers_is_nobodys(monkeypatch: pytest.MonkeyPatch) -> None:
    journal = book.opened(None)
    journal.adopt("http://127.0.0.1:1/mcp", "tool", "tsk_a")
    journal.adopt("http://127.0.0.1:2/mcp", "tool", "tsk_b")
    journal.close()
    monkeypatch.setenv(TOKEN, "secret")
    done = CliRunner().invoke(main, ["watch"])
    assert done.exit_code == 2
    assert "one token must not go to several servers" in done.output


def test_every_command_says_what_it_does() -> None:
    context = click.Context(main)
    for name in main.list_commands(context):
        command = main.get_command(context, name)
        assert command is not None
        assert CliRunner().invoke(main, [name, "--help"]).exit_code == 0
        assert command.get_short_help_str()


@pytest.mark.parametrize(
    ("command", "line"),
    [
        ("call", "    perdure call generate_report size=large -- python server.py --stdio"),
        ("completion", '    zsh:   eval "$(perdure completion zsh)"     in ~/.zshrc'),
    ],
)
def test_examples_have_lines_of_their_own(command: str, line: str) -> None:
    shown = CliRunner().invoke(main, [command, "--help"]).output
    assert line in shown.splitlines()
    assert "\\b" not in shown


async def refusing(request: Request) -> Response:
    return Response(status_code=401 if request.url.path == "/mcp" else 404)


@pytest.mark.parametrize(
    ("path", "token", "why"),
    [
        ("mcp", "", "HTTP status 401: it wants a token, in PERDURE_TOKEN or in the file that PERDURE_TOKEN_FILE names"),
        ("mcp", "x", "HTTP status 401: it does not take the token that PERDURE_TOKEN or the token file has"),
        ("api", "", "HTTP status 404: no server there; is the path /mcp, and not /api?"),
    ],
)
def test_why_a_server_opens_no_session_is_told_by_its_status(tmp_path: Path, path: str, token: str, why: str) -> None:
    app = Starlette(routes=[Route("/{path}", refusing, methods=["GET", "POST", "DELETE"])])
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(hosting(app)) as (_, url):
        _, errors = run("tools", f"{url}/{path}", folder=tmp_path, code=5, env={TOKEN: token})
    assert errors == f"perdure: {url}/{path}: {why}\n"
