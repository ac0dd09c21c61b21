"""What makes a stored task happen: workers that claim runs, keep their leases, and write outcomes under the fence.

The engine knows no tool and no MCP. It calls a `Handler` with a `Run` and the operation's parameters and stores what
comes back; how somebody's function becomes a handler is the business of `tools`, and which database lies below is
nobody's but the composition root's.
"""
