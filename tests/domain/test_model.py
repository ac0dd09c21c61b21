"""The few things that the values themselves decide."""

import pytest

from perdure.domain.model import Claim, JSONObject, Operation
from tests.domain.support import NOW, OPERATION, fresh

PARAMS: JSONObject = {"size": "large"}


def test_a_worker_claims_by_the_method_and_the_name() -> None:
    assert Operation("tools/call", "report", PARAMS).handler == "tools/call:report"


def test_what_a_version_of_a_tool_began_is_claimed_by_that_version_only() -> None:
    handlers = [Operation("tools/call", "report", PARAMS, version).handler for version in ("", "1", "2")]
    assert handlers == ["tools/call:report", "tools/call:report@1", "tools/call:report@2"]


@pytest.mark.parametrize(("failures", "deaths", "attempt"), [(0, 0, 1), (2, 0, 3), (0, 2, 3), (3, 4, 8)])
def test_every_failure_and_every_death_is_an_attempt_that_was(failures: int, deaths: int, attempt: int) -> None:
    assert Claim(fresh(), OPERATION, fence=41, at=NOW, failures=failures, deaths=deaths).attempt == attempt


def test_a_claim_is_for_the_task_that_it_carries() -> None:
    assert Claim(fresh(), OPERATION, fence=41, at=NOW).seq == fresh().seq
