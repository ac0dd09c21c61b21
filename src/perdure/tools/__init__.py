"""The author's view: what the code of a tool declares, sees of its task and may ask, and what comes of what it does.

It turns functions and their annotations into what the engine runs, by the SDK's own machinery. How a call came here,
and what a client is shown of it, is the wire's business: the same tool runs for all of them, and in the test harness,
where there is none.
"""
