"""What is read of a handle or a snapshot, whatever a backend has put there."""

from typing import Any

import pytest

from perdure.domain.model import Status
from perdure.gateway.snapshots import interval_of, status_of, task_of

ODD: list[Any] = [None, True, 1.5, [], {}, [["x"]]]


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_what_is_none_is_not_there(odd: Any) -> None:
    value = {"taskId": odd, "status": odd, "pollIntervalMs": odd}
    assert (task_of(value), status_of(value), interval_of(value)) == (None, None, None)
    assert (task_of({}), status_of({}), interval_of({})) == (None, None, None)


def test_a_status_is_one_of_the_five() -> None:
    assert [status_of({"status": each.value}) for each in Status] == [*Status]
    assert status_of({"status": "done"}) is None


@pytest.mark.parametrize(
    ("said", "seconds"), [(-5, 0.1), (0, 0.1), (2_500, 2.5), (10**9, 60), (10**400, 60), (-(10**400), 0.1)]
)
def test_an_interval_has_bounds_however_large_the_number_is(said: int, seconds: float) -> None:
    assert interval_of({"pollIntervalMs": said}) == seconds
