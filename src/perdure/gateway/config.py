"""The file that a gateway is started with: TOML to frozen values, and everything that is wrong with it at once.

    [gateway]
    name = "front"
    store = "postgresql://…"

    [backends.files]
    url = "http://10.0.0.5:8000/mcp"
    prefix = "files_"

Every error names its place and says what to write. A key that nobody knows is an error: it is a typing mistake, and
what it should have set would be silently something else. Times are durations as elsewhere ("500ms", "30s", "15m"), or
seconds.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

from perdure.domain.errors import ConfigurationError
from perdure.domain.limits import MAX_TENANT
from perdure.domain.routing import MAX_BACKEND

from . import config_bounds
from .backends import Naming
from .breaker import BreakerBounds
from .config_identity import ExchangeConfig, ForwardConfig, SignedConfig, identity
from .config_tables import Table
from .health import HealthBounds
from .retrying import Safe
from .urls import callable_url

__all__ = ["AuthConfig", "BackendConfig", "GatewayConfig", "Timeouts", "load", "parse"]

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_TOOL: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")
"""How clients expect names of tools to be (SEP-986). What a backend calls its own is its own affair."""
_LONGEST_NAME: Final = min(MAX_BACKEND, MAX_TENANT)
_MEBIBYTE: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds.

    `connect`: until there is a connection. `request`: of a whole request. `read`: without a byte of a response.
    `idle`: without a byte of a stream. `queue`: that a request waits for its turn.
    """

    connect: float = 5.0
    request: float = 300.0
    read: float = 60.0
    idle: float = 300.0
    queue: float = 10.0


@dataclass(frozen=True, slots=True)
class BackendConfig:
    """One backend, by its name. `identity`: how it is told who asks; None: it is told nothing."""

    name: str
    url: str
    tools: Naming
    prompts: Naming
    addresses: tuple[str, ...] = ()
    timeouts: Timeouts = field(default_factory=Timeouts)
    concurrency: int = 100
    queue: int = 1_000
    streams: int = 1_000
    response_body: int = 16 * _MEBIBYTE
    proxy: str | None = None
    identity: SignedConfig | ExchangeConfig | ForwardConfig | None = None
    breaker: BreakerBounds = field(default_factory=BreakerBounds)
    retry: Safe = field(default_factory=Safe)
    health: HealthBounds = field(default_factory=HealthBounds)


@dataclass(frozen=True, slots=True)
class AuthConfig:
    """How clients are authenticated. `verifier`: MODULE:ATTRIBUTE of a `TokenVerifier`, or of what makes one."""

    verifier: str
    issuer: str
    resource: str
    scopes: tuple[str, ...] = ()
    tenant_claim: str | None = None


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    """All of it.

    `instructions`: what clients read of all backends; None: what the backends say.
    `metrics`: whether GET /metrics is answered. `retention`: seconds that a route is kept once its task's time is over.
    `give_up`: seconds past its ttl for which a task is believed in whose backend can't be asked; None: for ever.
    """

    name: str
    version: str
    store: str
    backends: tuple[BackendConfig, ...]
    auth: AuthConfig | None = None
    metrics: bool = False
    page: int = 500
    request_body: int = 4 * _MEBIBYTE
    subscriptions: int = 1_000
    subscriptions_per_owner: int = 100
    subscribed_tasks: int = 1_000
    retention: float = 86_400.0
    give_up: float | None = None
    instructions: str | None = None


def load(path: Path, store: str | None = None) -> GatewayConfig:
    """What the file says. `store`: the store's URL, in place of the file's, which then need not have one.

    Raises:
        ConfigurationError: it can't be read, or something in it is wrong; each mistake has a line.
    """
    try:
        return parse(path.read_text("utf-8"), str(path), store)
    except (OSError, UnicodeError) as error:
        raise ConfigurationError(f"{path} can't be read: {error}") from None


def parse(text: str, where: str = "the configuration", store: str | None = None) -> GatewayConfig:
    """The same of a text.

    Raises:
        ConfigurationError: as `load`.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{where} is no TOML: {error}") from None
    errors: list[str] = []
    top = Table(document, "", errors)
    found = _gateway(top, store)
    if errors:
        raise ConfigurationError("\n".join([f"{where} can't be used:", *(f"  {error}" for error in errors)]))
    return found


def _gateway(top: Table, store: str | None) -> GatewayConfig:
    gateway, limits, routes = top.table("gateway"), top.table("limits"), top.table("routes")
    default = GatewayConfig("perdure-gateway", "1", "", ())
    named = gateway.text("store", store)
    found = GatewayConfig(
        name=gateway.text("name", default.name),
        version=gateway.text("version", default.version),
        store=store or named,
        metrics=gateway.flag("metrics"),
        page=gateway.count("page", default.page),
        backends=_backends(top),
        auth=_auth(top.table("auth")) if top.has("auth") else None,
        request_body=limits.count("request_body", default.request_body),
        subscriptions=limits.count("subscriptions", default.subscriptions),
        subscriptions_per_owner=limits.count("subscriptions_per_owner", default.subscriptions_per_owner),
        subscribed_tasks=limits.count("subscribed_tasks", default.subscribed_tasks),
        retention=routes.seconds("retention", default.retention),
        give_up=routes.seconds("give_up", 0.0) if routes.has("give_up") else None,
        instructions=gateway.maybe("instructions"),
    )
    for table in (gateway, limits, routes, top):
        table.end()
    _check_tokens(found, top)
    return found


def _auth(table: Table) -> AuthConfig:
    found = AuthConfig(
        verifier=table.text("verifier"),
        issuer=table.text("issuer"),
        resource=table.text("resource"),
        scopes=table.texts("scopes"),
        tenant_claim=table.maybe("tenant_claim"),
    )
    module, _, name = found.verifier.partition(":")
    if found.verifier and not (name.isidentifier() and module.replace(".", "_").isidentifier()):
        table.wrong("verifier", "write MODULE:ATTRIBUTE, for example company.auth:verifier")
    for key, url in (("issuer", found.issuer), ("resource", found.resource)):
        if url and callable_url(url) is None:
            table.wrong(key, "write a URL that begins with https://, and a host")
    table.end()
    return found


def _backends(top: Table) -> tuple[BackendConfig, ...]:
    given = top.take("backends")
    if not isinstance(given, dict) or not given:
        top.wrong("backends", "there is none: write [backends.NAME] with its url")
        return ()
    all_of_them = Table(cast("dict[str, Any]", given), "backends.", top.errors)
    found: list[BackendConfig] = []
    for name in cast("dict[str, Any]", given):
        if _NAME.fullmatch(name) is None or len(name) > _LONGEST_NAME:
            signs = f"1 to {_LONGEST_NAME} letters, digits, '-', '_' and '.'"
            all_of_them.wrong(name, f"a name is {signs}, and begins with a letter or a digit")
        found.append(_backend(name, all_of_them.table(name)))
    _check_names(found, all_of_them)
    _check_addresses(found, all_of_them)
    return tuple(found)


def _backend(name: str, table: Table) -> BackendConfig:
    prefix = table.take("prefix")
    if prefix is None:
        prefix = f"{name}_"
    elif not isinstance(prefix, str):
        table.wrong("prefix", "write a text, which may be empty")
        prefix = ""
    elif prefix and _TOOL.fullmatch(prefix) is None:
        table.wrong("prefix", "names of tools have letters, digits, '_', '-' and '.'")
    default = BackendConfig(name, "", Naming(), Naming())
    found = BackendConfig(
        name=name,
        url=table.text("url"),
        tools=_naming(table, "tools", prefix),
        prompts=_naming(table, "prompts", prefix),
        addresses=table.texts("addresses"),
        timeouts=_timeouts(table.table("timeouts")),
        concurrency=table.count("concurrency", default.concurrency),
        queue=table.count("queue", default.queue),
        streams=table.count("streams", default.streams),
        response_body=table.count("response_body", default.response_body),
        proxy=table.maybe("proxy"),
        identity=identity(table.table("identity")),
        breaker=config_bounds.breaker(table.table("breaker")),
        retry=config_bounds.retry(table.table("retry")),
        health=config_bounds.health(table.table("health")),
    )
    if found.url and not found.url.startswith(("https://", "http://")):
        table.wrong("url", "write a URL that begins with https:// or http://")
    table.end()
    return found


def _check_tokens(found: GatewayConfig, top: Table) -> None:
    """That whoever is told who asks by a client's token will ever see one."""
    if found.auth is not None:
        return
    for backend in found.backends:
        if isinstance(backend.identity, ExchangeConfig | ForwardConfig):
            top.wrong(f"backends.{backend.name}.identity", "needs the clients' tokens: write [auth]")


def _timeouts(table: Table) -> Timeouts:
    default = Timeouts()
    found = Timeouts(
        connect=table.seconds("connect", default.connect),
        request=table.seconds("request", default.request),
        read=table.seconds("read", default.read),
        idle=table.seconds("idle", default.idle),
        queue=table.seconds("queue", default.queue),
    )
    table.end()
    return found


def _naming(table: Table, key: str, prefix: str) -> Naming:
    if not table.has(key):
        return Naming(prefix)
    given = table.table(key).rest()
    if not all(isinstance(name, str) and name and ours for ours, name in given.items()):
        table.wrong(key, "write EXPOSED = 'NAME THERE' for each")
        return Naming(prefix)
    if key == "tools":
        for ours in given:
            if _TOOL.fullmatch(ours) is None:
                table.wrong(key, f"{ours!r}: a tool's name is 1 to 128 letters, digits, '_', '-' and '.'")
    names = [*given.values()]
    for name in {name for name in names if names.count(name) > 1}:
        table.wrong(key, f"{name!r} is exposed under two names")
    return Naming(mapped=cast("dict[str, str]", given))


def _check_names(found: list[BackendConfig], table: Table) -> None:
    """That what the file itself says leaves no name to two backends."""
    for kind in ("tools", "prompts"):
        seen: dict[str, str] = {}
        for backend in found:
            naming: Naming = getattr(backend, kind)
            claims = [f"the prefix {naming.prefix!r}"] if naming.mapped is None and naming.prefix else []
            claims += [f"the name {ours!r}" for ours in naming.mapped or ()]
            for claim in claims:
                if (other := seen.setdefault(claim, backend.name)) != backend.name:
                    table.wrong(f"{backend.name}.{kind}", f"{claim} is that of {other} already")


def _check_addresses(found: list[BackendConfig], table: Table) -> None:
    """The same of the beginnings of addresses."""
    addresses: dict[str, str] = {}
    for backend in found:
        for address in backend.addresses:
            if (other := addresses.setdefault(address, backend.name)) != backend.name:
                table.wrong(f"{backend.name}.addresses", f"{address!r} is that of {other} already")
