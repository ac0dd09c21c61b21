"""A program that puts one elicitation to whoever is at its terminal, and prints the answer.

    python -m tests.ops.calling.filling PARAMS

PARAMS is JSON: the parameters of `elicitation/create`.
"""

import json
import sys

import anyio
from mcp_types import ElicitRequestFormParams, ElicitRequestURLParams

from perdure.ops.calling import forms
from perdure.ops.calling.screen import Keyboard, Screen


async def main(said: str) -> None:
    raw = json.loads(said)
    kind = ElicitRequestURLParams if raw.get("mode") == "url" else ElicitRequestFormParams
    asked = kind.model_validate(raw)
    answer = await forms.fill(Screen(sys.stderr, live=True, colour=False), Keyboard(sys.stdin.fileno()), asked)
    print(json.dumps(answer.model_dump(mode="json", by_alias=True, exclude_none=True)))


if __name__ == "__main__":
    anyio.run(main, sys.argv[1])
