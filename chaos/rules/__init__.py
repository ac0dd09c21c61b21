"""The rules, each a function that yields what breaks it. Pure: a case in, what was found out.

A rule claims no more than is promised. A worker that was stopped past its lease and goes on (a ghost) may do again what
its successor has done, as long as nothing of it reaches the store; a request without an answer may be carried out
later, or never; of two exchanges that overlap, either may have come first.
"""
