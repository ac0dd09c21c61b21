"""The program `perdure`: the first lines that are run, before anything is imported that takes time.

Whatever else this module imported would be imported before it can say what Ctrl-C is to do meanwhile. So it stays as
small as it is, and so do `perdure` and `perdure.ops`, which are loaded before it.
"""

from .loaded import Loading

__all__ = ["program"]


def program() -> None:
    """Run the command that the arguments of the process say. Never returns."""
    loading = Loading()
    from . import cli, ending

    ending.run(lambda: cli.main.main(prog_name="perdure", obj=loading, standalone_mode=False))
