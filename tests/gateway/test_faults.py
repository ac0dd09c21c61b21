"""What a client hears of a fault, and what the client library makes of that."""

from __future__ import annotations

from typing import Any

import pytest
from mcp.shared.exceptions import MCPError

from perdure.client import faults as client
from perdure.gateway.faults import (
    BackendBroken,
    BackendRefused,
    BackendTimeout,
    BackendUnavailable,
    Fault,
    IdentityRefused,
    IdentityUnavailable,
    Overloaded,
)

FAULTS = [
    BackendUnavailable("b"),
    BackendUnavailable("b", begun=True, retry_after_ms=70),
    BackendTimeout("b", begun=True, counts=True),
    BackendBroken("b", "nonsense"),
    BackendRefused("b", 401),
    Overloaded("b"),
    IdentityRefused("b", "no token"),
    IdentityUnavailable("b"),
]


def heard(fault: Fault) -> MCPError:
    error: dict[str, Any] = fault.error()
    return MCPError(error["code"], error["message"], error["data"])


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: type(fault).__name__)
def test_each_says_that_it_is_the_gateways_and_which_backend_it_is_about(fault: Fault) -> None:
    data: Any = fault.error()["data"]
    assert data["gateway"] is True
    assert data["backend"] == "b"
    assert data.get("retryAfterMs") == fault.retry_after_ms
    assert fault.status >= 400


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: type(fault).__name__)
def test_the_client_library_takes_what_may_have_been_carried_out_for_that_and_nothing_else(fault: Fault) -> None:
    """Or it would make a call again that was already made, or not make one that was not."""
    refused = isinstance(fault, BackendRefused | IdentityRefused)
    assert client.may_have_arrived(heard(fault)) == fault.begun
    assert (client.judge(heard(fault), "tsk_a").ends is not None) == refused


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: type(fault).__name__)
def test_it_can_be_raised_again_for_somebody_else(fault: Fault) -> None:
    again = fault.again()
    assert again is not fault
    assert again.error() == fault.error()
    assert again.__traceback__ is None
