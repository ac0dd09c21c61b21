"""The official conformance suite, run against `examples/conformance_server.py` and read row by row."""
