"""What Perdure costs, measured beside what it stands on.

    python -m bench.store       durable creates and claims, beside one transaction per operation; `--store postgresql`
    python -m bench.http        requests a second, beside a do-nothing tool on a bare SDK server
    python -m bench.parking     memory of a server whose tasks wait for a person
    python -m bench.timers      whether 100,000 sleeping tasks wake on time, and what they cost
    python -m bench.takeover    how long the tasks of a dead worker wait for another one
    python -m bench.steps       steps of one task and of 64 at once, beside an fsync
    python -m bench.wakeups     how soon one process hears what was said on another (PostgreSQL)
    python -m bench.listen      how soon who listens for a task reads of its change, and what open streams cost
    python -m bench.drain       how much faster four workers drain a queue than one (PostgreSQL)

Each prints one table and exits 0, or 1 with `--check` when a target is missed. Absolute figures belong to the machine
and to whoever else is using it, so whatever is compared is measured in turns within one run, and reported as a median.
PostgreSQL is a private server, started for the run in the same folder as everything else (`backends.postgresql`).
"""
