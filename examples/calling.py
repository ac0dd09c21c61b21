"""Calls a task tool of `examples/report_server.py` as if it were an ordinary one.

python examples/calling.py --port 8000
"""

import argparse
import asyncio

from mcp import Client
from mcp.client.session import ClientRequestContext
from mcp_types import ElicitRequestParams, ElicitResult

from perdure.client import HTTP, TaskFailed, Tasks


async def approve(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
    print(params.message, "Yes.")
    return ElicitResult(action="accept", content={"approved": True})


async def main(port: int) -> None:
    url = f"http://127.0.0.1:{port}/mcp"
    async with Client(HTTP(url), extensions=[Tasks()], elicitation_callback=approve) as client:
        try:
            result = await client.call_tool("generate_report", {"size": "large"})
            print(result.structured_content)
        except TaskFailed as failed:
            print("failed:", failed.error.message)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Call a task tool.")
    parser.add_argument("--port", type=int, default=8000)
    asyncio.run(main(parser.parse_args().port))
