"""The conformance suite for whoever writes a `Store`: what `perdure.store.base` promises, test by test.

Give it a store, and pytest does the rest:

    from perdure.testing.stores import MakeStore, StoreSuite


    class TestMyStore(StoreSuite):
        @pytest.fixture
        def make_store(self, tmp_path: Path) -> MakeStore:
            return lambda clock: MyStore(tmp_path / "tasks", clock)

Every backend of perdure's own passes this suite, run in this way. Its tests have no order, share nothing, and never
sleep: time moves when a test moves the clock that your store was given. It needs pytest (`perdure[testing]`), and
anyio's plugin, which comes with anyio and so with perdure.
"""

from .support import MakeStore

try:
    from .suite import StoreSuite
except ModuleNotFoundError as error:
    if error.name != "pytest":
        raise
    raise ModuleNotFoundError("perdure.testing.stores needs pytest: pip install 'perdure[testing]'") from error

__all__ = ["MakeStore", "StoreSuite"]
