"""The command line for people who call task tools: `perdure call` and what belongs to it, on top of `perdure.client`.

It owns words, screens and exit codes. How tasks are called, watched, answered and remembered is the client's, and
nothing of it is done twice here. What a server says is somebody else's text: it reaches a terminal through `text` only.
"""
