"""Runs a program with our client extension in each connection that it makes with `mcp.Client`.

    python tests/conformance/client.py PROGRAM ARGUMENT...

The program is the SDK's own conformance client, which knows nothing of us, so it finds its `Client` changed. It imports
the class by name, hence before it runs.
"""

import runpy
import sys
from typing import Any

import mcp.client.client

from perdure.client import Tasks


def main() -> None:
    bare = mcp.client.client.Client

    def extended(*arguments: Any, **options: Any) -> mcp.client.client.Client:
        return bare(*arguments, extensions=[Tasks()], **options)

    setattr(mcp.client.client, "Client", extended)  # noqa: B010 - nothing that a type could say
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
