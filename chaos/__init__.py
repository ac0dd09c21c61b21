"""Perdure under fire: processes are killed, stopped and cut off from their disk, and an oracle looks for what broke.

    python -m chaos --store postgresql --minutes 10 --faults 200 [--seed N]

Several `perdure serve` and `perdure worker` processes share one store: a SQLite file, or a PostgreSQL server. Clients
create tasks over HTTP, poll them, answer what they ask and cancel some; other systems say how the work ended that tools
handed over to them. A driver does to the processes and to their world whatever the seed says. When all has calmed down,
the oracle compares what the clients were told, what the tools did, and what the store holds: three accounts, kept
apart, of one history.

- `app`, `traced`, `effects`: the tools, and the journal of what they did, which no crash can tear;
- `kinds`: what they are called with, and what may become of it;
- `processes`: who runs, and keeping them running;
- `interposer`, `disk`, `links`: a clock, an fsync, a disk and a network that can be made to misbehave;
- `stores`: for each store, where it lies, what can be done to it there, and what it holds at the end;
- `plan`, `faults`: what happens to all of them, and when;
- `client`, `load`, `contractor`, `history`: what clients and other systems do, and all that they were told;
- `evidence`, `logs`, `case`, `rules`, `oracle`: what the store holds, what logs say, the rules, and the verdict;
- `rig`, `report`: one storm from the first process to the verdict.

Nothing here looks into perdure: it is started by its command line, asked over HTTP, and its tables are read with SQL.
"""
