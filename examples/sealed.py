"""A server that you start yourself, whose tasks are sealed under keys that it takes from wherever yours come from.

export CLINIC_KEYS="$(perdure rekey --new-key)"
python examples/sealed.py
"""

import os

from perdure import KeyRing, Tasks

tasks = Tasks("sqlite:///clinic.db", keys=KeyRing.parse(os.environ["CLINIC_KEYS"]))
mcp = tasks.server("clinic")


@tasks.tool(ttl="30d")
async def summarize(notes: str) -> str:
    return f"{len(notes.split())} words, of which the first is {notes.split()[0]}"


if __name__ == "__main__":
    mcp.run("streamable-http")
