"""Which texts are URLs that can be called. What is none has to be said at the start, and not by the first request."""

from __future__ import annotations

import httpx2

__all__ = ["callable_url"]


def callable_url(text: str) -> httpx2.URL | None:
    """The URL of http or https, if a resolver can be asked for its host and its port is one; else None."""
    try:
        url = httpx2.URL(text)
        url.host.encode("idna")  # as the resolver does, which raises no OSError
    except (httpx2.InvalidURL, UnicodeError):
        return None
    # What may be in no host is in it as %XX; an IPv6 address may have a zone behind one.
    if url.scheme not in ("http", "https") or not url.host or ("%" in url.host and ":" not in url.host):
        return None
    return url if url.port is None or 0 < url.port < 65_536 else None
