"""What operators do from the command line: they look at a store, and lend a hand where one is needed.

`access` opens a store, `looking` and `acting` ask of it. What they find is taken down to plain values first (`plain`),
which is what `--json` prints, and then put into words (`words`). Arguments, results, answers, tokens and
messages of tools never get that far unless they are asked for (`contents`); why a task failed does, where Perdure
itself says so. `commands` is what is typed, and `filters` how tasks are named by what they have in common.
"""

from .commands import echo, tasks
from .looking import status
from .words import say_status

__all__ = ["echo", "say_status", "status", "tasks"]
