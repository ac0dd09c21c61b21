"""What people start: the composition root, the command line, the demo.

The only room that knows which store a URL means.
"""
