"""SQLite beside the reference model, under one clock: whatever is asked of both, nobody can tell them apart.

Tasks, and the routes of a gateway.
"""

import pytest
from hypothesis import settings

from tests.store.stateful import Stores
from tests.store.stateful_routes import BothRoutes

pytestmark = [
    pytest.mark.timeout(900),  # to run takes seconds; to make a failure small enough to read takes minutes
    pytest.mark.usefixtures("untraced"),
]

TestStores = Stores.TestCase
# Half the examples of other tests: each one here is a history, in a file of its own.
TestStores.settings = settings(max_examples=settings().max_examples // 2, stateful_step_count=30)

TestRoutes = BothRoutes.TestCase
TestRoutes.settings = TestStores.settings
