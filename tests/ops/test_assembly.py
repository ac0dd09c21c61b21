"""What is said of a server as it was put together."""

import pytest
from mcp.server.mcpserver import MCPServer, RequestStateSecurity

from perdure import Tasks

SHARED = "postgresql://db1/tasks"


@pytest.mark.parametrize(
    ("url", "keys", "warned"),
    [(SHARED, None, True), (SHARED, ["k" * 32], False), ("sqlite:///tasks.db", None, False)],
    ids=["a key of its own", "a key that is given", "one machine"],
)
def test_a_key_of_its_own_is_warned_of_where_servers_may_be_several(
    url: str, keys: list[str] | None, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    tasks = Tasks(url)
    tasks.server("small", request_state_security=None if keys is None else RequestStateSecurity(keys=keys))
    tasks.assembly.warn_of_keys()
    assert ("the key for requestState is this process's own" in caplog.text) is warned


def test_what_key_a_server_has_that_was_made_by_hand_is_not_guessed(caplog: pytest.LogCaptureFixture) -> None:
    tasks = Tasks(SHARED)
    MCPServer("own", extensions=[tasks], middleware=[tasks.middleware], lifespan=tasks.lifespan)
    tasks.assembly.warn_of_keys()
    assert not caplog.records
