"""One address before many MCP servers: a proxy of raw JSON that finds a task again after the request is over.

What arrives is parsed once, checked as a server would check it, and passed on as it is, but for the ids and the names
that the gateway itself has made. Two tables with two lifetimes: requests that are under way are in memory
(`inflight`), and which backend has which task is in the store (`routing`).
"""
