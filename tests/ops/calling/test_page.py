"""The session in docs/howto/command-line.md is what the programs print on a terminal, if that is typed what it shows.

Ids, the port and times are the test's own, and so is the room that they take; whether a state that passes at once is
seen is chance.
"""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from perdure.ops.calling.outcome import Code
from perdure.ops.cli import main
from perdure.ops.ending import UNWRITTEN
from tests.acceptance.support import REPORT_SERVER, running
from tests.ops.calling.terminal import CTRL_C, PERDURE, Terminal, at_a_terminal
from tests.wire.support import ROOT

PAGE = ROOT / "docs" / "howto" / "command-line.md"
ID = re.compile(r"tsk_\w{32}")
TYPED = re.compile(r"^(?P<prompt>  .*\): )(?P<typed>\S+)$")
CODES = {"^C": 4, "waits for an answer": 4, "not approved": 1}
"""How a command ends whose part of the session has this in it; else 0."""


def session() -> Iterator[tuple[str, str]]:
    """Each command of the page, and what follows it there."""
    (block,) = re.findall(r"```console\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield command, output


def masked(text: str) -> list[str]:
    """The lines without what is another one each time."""
    text = re.sub(r"127\.0\.0\.1:\d+", "HOST", ID.sub("ID", text))
    text = re.sub(r"\d+ (s|min \d+ s)\b(?! cancels)", "TIME", text)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    return [line for line in lines if line and not line.startswith("TIME working")]


async def typed(terminal: Terminal, output: str) -> None:
    """Type what the page shows after the prompts."""
    before = ""
    for line in output.splitlines():
        found, last, before = TYPED.match(line), before, line
        if found is None:
            continue
        await terminal.until(f"{last}\n{found['prompt']}")
        if found["typed"] == "^C":
            terminal.type(CTRL_C)
            await terminal.until("Enter leaves at once.")
            terminal.type("\n")
        else:
            terminal.type(f"{found['typed']}\n")


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_the_session_is_what_the_programs_print(tmp_path: Path) -> None:
    ids: dict[str, str] = {}
    async with running(REPORT_SERVER, tmp_path) as (server, _):
        for command, expected in session():
            words = [ids.get(word, word) for word in shlex.split(command.replace(":8000/", f":{server.port}/"))[1:]]
            async with at_a_terminal(*PERDURE, *words, env={"XDG_STATE_HOME": str(tmp_path)}) as terminal:
                await typed(terminal, expected)
                code = next((code for sign, code in CODES.items() if sign in expected), 0)
                screen = await terminal.ends(code)
            ids.update(zip(ID.findall(expected), ID.findall(screen), strict=True))
            assert masked(screen) == masked(expected), command


def test_the_page_has_all_exit_codes_and_commands() -> None:
    page = PAGE.read_text("utf-8")
    assert [int(code) for code in re.findall(r"^\| (\d) \|", page, re.MULTILINE)] == sorted([*Code, UNWRITTEN])
    shown = set(re.findall(r"^\| `perdure (\w+)", page, re.MULTILINE))
    assert (
        shown
        == {"tools", "call", "resume", "watch", "answer", "cancel", "ls", "forget", "completion"}
        <= {*main.list_commands(click.Context(main))}
    )
