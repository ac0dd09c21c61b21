"""What Python does first in each program that a test starts (`tests.conftest` puts this folder on their path).

Some 500 of them load the SDK, and end. To look for garbage among what they have loaded takes a third of their processor
time, most of it at the end, when nobody needs the memory any more. They have a collector all the same, for what becomes
garbage while they run.
"""

import atexit
import gc

gc.set_threshold(50_000, 20, 100)
atexit.register(gc.freeze)
