"""How a backend is told who asks, as the file says it: `kind` is "signed", "exchange", "forward" or "none".

Secrets are not in the file. It says in which environment variable, or in which file, one is.
"""

from __future__ import annotations

from dataclasses import dataclass

from .config_tables import Table

__all__ = ["ExchangeConfig", "ForwardConfig", "SecretPlace", "SignedConfig", "identity"]


@dataclass(frozen=True, slots=True)
class SecretPlace:
    """Where a secret is: in the environment variable `env`, or in `file`."""

    env: str | None
    file: str | None


@dataclass(frozen=True, slots=True)
class SignedConfig:
    """By a header that the gateway signs. `pair`: the secret is the private half of an Ed25519 pair, as PEM."""

    audience: str
    issuer: str | None
    key: str
    secret: SecretPlace
    pair: bool


@dataclass(frozen=True, slots=True)
class ExchangeConfig:
    """By a token that an authorization server gives for the client's (RFC 8693)."""

    endpoint: str
    client_id: str
    client_secret: SecretPlace
    audience: str | None
    resource: str | None
    scope: str | None


@dataclass(frozen=True, slots=True)
class ForwardConfig:
    """By the client's own token, if that names `audience`."""

    audience: str


def identity(table: Table) -> SignedConfig | ExchangeConfig | ForwardConfig | None:
    """What the table says. Everything that is wrong with it is gathered there."""
    kind = table.text("kind", "none")
    found: SignedConfig | ExchangeConfig | ForwardConfig | None = None
    match kind:
        case "signed":
            pair = table.has("private_key_file")
            secret = SecretPlace(None, table.maybe("private_key_file")) if pair else _secret(table, "secret")
            found = SignedConfig(table.text("audience"), table.maybe("issuer"), table.text("key"), secret, pair)
        case "exchange":
            found = ExchangeConfig(
                table.text("endpoint"),
                table.text("client_id"),
                _secret(table, "client_secret"),
                table.maybe("audience"),
                table.maybe("resource"),
                table.maybe("scope"),
            )
        case "forward":
            found = ForwardConfig(table.text("audience"))
        case "none":
            pass
        case _:
            table.wrong("kind", f"is {kind!r}: write signed, exchange, forward or none")
            table.rest()
    table.end()
    return found


def _secret(table: Table, name: str) -> SecretPlace:
    place = SecretPlace(table.maybe(f"{name}_env"), table.maybe(f"{name}_file"))
    if (place.env is None) == (place.file is None):
        table.wrong(f"{name}_env", f"say where the secret is: {name}_env or {name}_file, one of them")
    return place
