"""Which hosts are this machine, and that anything doubtful is not."""

import pytest

from perdure.domain.hosts import is_this_machine


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.9.10", "::1"])
def test_loopback_is_this_machine(host: str) -> None:
    assert is_this_machine(host)


@pytest.mark.parametrize(
    "host", ["", "0.0.0.0", "::", "192.0.2.7", "example.com", "localhost.example.com", "127.1", "2130706433", "[::1]"]
)
def test_what_is_not_sure_to_be_is_another(host: str) -> None:
    assert not is_this_machine(host)
