"""Two gateways under fire: three backends behind them, one PostgreSQL server below, and clients that hang up.

    python -m chaos.gateway --minutes 5 --seed N

The backends are a server of ours on PostgreSQL, a FastMCP server whose tasks are in Redis, and a plain one without
tasks. All of them and the gateways are killed and stopped, the connections between are cut, and PostgreSQL suffers what
`chaos.stores` does to it. Several owners make tasks meanwhile, look for them at either gateway, listen to them, try to
get at each other's, and take back requests: by hanging up, or by `notifications/cancelled`. Then all calms down, every
task that somebody was told of is asked for once more at both gateways, and the oracle compares what clients were told
with the table of routes and with what our backend holds.

FastMCP's own store is its memory, and would lose tasks with each kill, so it is given Redis, which is left alone. What
is kept there is not looked into: of its tasks only that counts which clients are told.

- `ours`, `fastmcp_server`, `plain_server`: what the backends can do;
- `house`: all processes, the links between them, and what can be done to those;
- `client`, `load`, `told`: what clients do, and all that they were told;
- `oracle`: the rules; `rig`: one storm.
"""
