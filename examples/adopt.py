from perdure import Tasks, serve

tasks = Tasks("sqlite:///tasks.db")
mcp = tasks.server("numbers")


@tasks.tool(ttl="1d")
def sum_of_squares(upto: int) -> int:
    return sum(n * n for n in range(upto + 1))


if __name__ == "__main__":
    serve(mcp)
