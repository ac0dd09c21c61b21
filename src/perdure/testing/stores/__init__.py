"""The conformance suite for whoever writes a `Store`: what `perdure.store.base` promises, test by test.

Give it a store, and pytest does the rest:

    from perdure.testing.stores import MakeStore, StoreSuite


    class TestMyStore(StoreSuite):
        @pytest.fixture
        def make_store(self, tmp_path: Path) -> MakeStore:
            return lambda clock: MyStore(tmp_path / "tasks", clock)

For the table of routes that a gateway keeps (`perdure.store.routes`) there is `RoutesSuite`, with `make_routes`.

Every backend of perdure's own passes this suite, run in this way. Its tests have no order, share nothing, and never
sleep: time moves when a test moves the clock that your store was given. It needs pytest (`perdure[testing]`), and
anyio's plugin, which comes with anyio and so with perdure.
"""

from .support import MakeRoutes, MakeStore

try:
    from .suite import RoutesSuite, StoreSuite
except ModuleNotFoundError as error:
    if error.name != "pytest":
        raise
    raise ModuleNotFoundError("perdure.testing.stores needs pytest: pip install 'perdure[testing]'") from error

__all__ = ["MakeRoutes", "MakeStore", "RoutesSuite", "StoreSuite"]
