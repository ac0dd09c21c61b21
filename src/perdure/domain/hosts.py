"""Which hosts are this machine: nobody sees what goes there on the way, and nobody else reaches what listens there.

By the name alone, without asking a name server: what is not sure to be this machine counts as another one.
"""

from __future__ import annotations

import ipaddress

__all__ = ["is_this_machine"]


def is_this_machine(host: str) -> bool:
    """Whether `host`, a name or an address as URLs have them (without brackets), is a loopback address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
