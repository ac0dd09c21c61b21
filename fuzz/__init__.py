"""Perdure fed with what nobody means well: requests that are wrong in every way, and files that are damaged.

`python -m fuzz` takes turns between targets, each of which makes up cases, shrinks what it finds and says what must
hold. What a client sends goes to a real server over loopback; what happens to a disk happens to copies of a real store.
Faults of processes under load are `chaos`'s.
"""
