"""The same with an `MCPServer` that you build yourself."""

from mcp.server.mcpserver import MCPServer

from perdure import Tasks

tasks = Tasks("sqlite:///own_server.db")
mcp = MCPServer("numbers", extensions=[tasks], middleware=[tasks.middleware], lifespan=tasks.lifespan)


@mcp.tool()
def double(n: int) -> int:
    """An ordinary tool stays one: it is never a task."""
    return 2 * n


@tasks.tool()
def sum_of_squares(upto: int) -> int:
    """Add up the squares of the numbers from 0 to `upto`."""
    return sum(n * n for n in range(upto + 1))


if __name__ == "__main__":
    mcp.run("streamable-http")
