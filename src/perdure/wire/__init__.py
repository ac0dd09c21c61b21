"""MCP on one side, the engine on the other: requests in, dictionaries out.

What arrives is parsed once, here; what leaves is rendered here, as dictionaries (the SDK drops `None` from models,
which would lose `ttlMs: null`). Everything goes through public interfaces of the SDK: an `Extension`, a middleware, a
lifespan. What the code of a tool is given is the room of `tools`; here it is only called.
"""
