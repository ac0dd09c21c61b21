"""Passing on who asks: what there is to choose from, per backend, and what a backend of ours verifies it by."""

from .passing import Anonymous, ForwardToken, Passing
from .signing import HEADER, Key, SignedHeader, signed_identity
from .token_exchange import ExchangeTerms, TokenExchange

__all__ = [
    "HEADER",
    "Anonymous",
    "ExchangeTerms",
    "ForwardToken",
    "Key",
    "Passing",
    "SignedHeader",
    "TokenExchange",
    "signed_identity",
]
