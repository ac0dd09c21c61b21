"""How each backend of a gateway is told who asks: what the configuration says, with the secrets that it points at."""

from __future__ import annotations

import os
from pathlib import Path

from perdure.domain.errors import ConfigurationError
from perdure.gateway.config import BackendConfig
from perdure.gateway.config_identity import ExchangeConfig, ForwardConfig, KeyConfig, SecretPlace, SignedConfig
from perdure.gateway.identity import Anonymous, ExchangeTerms, ForwardToken, Key, Passing, SignedHeader, TokenExchange

__all__ = ["passing_of"]


def passing_of(config: BackendConfig, gateway: str) -> Passing:
    """The way for one backend. `gateway`: the name that it signs with, unless the configuration says another one.

    Raises:
        ConfigurationError: a secret is not where it should be, or is none.
    """
    match config.identity:
        case SignedConfig() as signed:
            keys = [_key(config.name, key) for key in signed.keys]
            return SignedHeader(signed.audience, issuer=signed.issuer or gateway, keys=keys)
        case ExchangeConfig() as exchange:
            secret = _text(config.name, _secret(config.name, exchange.client_secret))
            how = ExchangeTerms(
                exchange.endpoint, exchange.client_id, secret, exchange.audience, exchange.resource, exchange.scope
            )
            return TokenExchange(config.name, how)
        case ForwardConfig() as forward:
            return ForwardToken(config.name, forward.audience)
        case None:
            return Anonymous()


def _key(backend: str, key: KeyConfig) -> Key:
    secret = _secret(backend, key.secret)
    try:
        return Key.private(key.id, secret) if key.pair else Key.shared(key.id, secret)
    except ConfigurationError as error:
        raise ConfigurationError(f"backends.{backend}.identity: {error}") from None


def _text(backend: str, secret: bytes) -> str:
    try:
        return secret.decode()
    except UnicodeError:
        raise ConfigurationError(f"backends.{backend}.identity: the client's secret is no text") from None


def _secret(backend: str, place: SecretPlace) -> bytes:
    if place.env is not None:
        value = os.environ.get(place.env, "")
        if not value:
            raise ConfigurationError(f"backends.{backend}.identity: {place.env} is not set in the environment")
        return os.fsencode(value)
    try:
        return Path(place.file or "").read_bytes().strip()
    except OSError as error:
        raise ConfigurationError(f"backends.{backend}.identity: {place.file} can't be read: {error.strerror}") from None
