"""How a backend is told who asks, as the file says it: `kind` is "signed", "exchange", "forward" or "none".

Secrets are not in the file. It says in which environment variable, or in which file, one is.
"""

from __future__ import annotations

from dataclasses import dataclass

from .config_tables import Table

__all__ = ["ExchangeConfig", "ForwardConfig", "KeyConfig", "SecretPlace", "SignedConfig", "identity"]


@dataclass(frozen=True, slots=True)
class SecretPlace:
    """Where a secret is: in the environment variable `env`, or in `file`."""

    env: str | None
    file: str | None


@dataclass(frozen=True, slots=True)
class KeyConfig:
    """A key by its name. `pair`: the secret is the private half of an Ed25519 pair, as PEM."""

    id: str
    secret: SecretPlace
    pair: bool


@dataclass(frozen=True, slots=True)
class SignedConfig:
    """By a header that the gateway signs, by the first of `keys`; the others wait for their turn, or have had it."""

    audience: str
    issuer: str | None
    keys: tuple[KeyConfig, ...]


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
            found = SignedConfig(table.text("audience"), table.maybe("issuer"), _keys(table))
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


def _keys(table: Table) -> tuple[KeyConfig, ...]:
    """The keys: a list, or one that stands in the table itself."""
    if not table.has("keys"):
        return (_key(table, "key"),)
    found: list[KeyConfig] = []
    for each in table.tables("keys"):
        key = _key(each, "id")
        if key.id in [other.id for other in found]:
            each.wrong("id", f"there is another key {key.id!r}")
        each.end()
        found.append(key)
    return tuple(found)


def _key(table: Table, name: str) -> KeyConfig:
    pair = table.has("private_key_file")
    secret = SecretPlace(None, table.maybe("private_key_file")) if pair else _secret(table, "secret")
    return KeyConfig(table.text(name), secret, pair)


def _secret(table: Table, name: str) -> SecretPlace:
    place = SecretPlace(table.maybe(f"{name}_env"), table.maybe(f"{name}_file"))
    if (place.env is None) == (place.file is None):
        table.wrong(f"{name}_env", f"say where the secret is: {name}_env or {name}_file, one of them")
    return place
