"""The pure heart: what a task is and how it may change.

Nothing here does I/O, reads a clock, draws a random number or knows an event loop; what a decision needs is passed in.
Imports: the standard library only (held by an import contract).
"""
