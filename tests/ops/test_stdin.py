"""Standard input that ends when the process is told to stop, as a program of its own has it."""

import asyncio
import sys

from tests.support import PATIENCE

PROGRAM = """
import sys
from perdure.ops.stdin import ends_when_told

def last():
    raise RuntimeError("broken")

with ends_when_told(last):
    print(sys.stdin.read())
"""


async def test_the_input_ends_whatever_comes_of_what_is_called_before() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        PROGRAM,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(PATIENCE):
            said, _ = await process.communicate(b"a line")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert (process.returncode, said.decode().split()) == (0, ["a", "line"])
