"""Testing durable tools: crashes, answers and days of waiting, in a unit test that takes milliseconds.

`Harness` runs the task tools of a `Tasks` on a virtual clock, one run at a time, in an order that is always the same,
and lets the worker die at any write that you choose. `crash_everywhere` does so at each of them. What runs is the real
engine over the real handlers; only time and the deaths are made up.

Whoever writes a `Store` of their own finds what it has to do in `perdure.testing.stores`.
"""

from .clock import VirtualClock
from .crashing import Crash
from .harness import Harness, crash_everywhere
from .view import TaskView

__all__ = ["Crash", "Harness", "TaskView", "VirtualClock", "crash_everywhere"]
