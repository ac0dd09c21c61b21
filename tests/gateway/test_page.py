"""The page on gateways says what the file may hold, and which metrics there are."""

import re
from dataclasses import fields
from typing import Any

import pytest

from perdure.gateway.breaker import BreakerBounds
from perdure.gateway.config import AuthConfig, BackendConfig, GatewayConfig, Timeouts
from perdure.gateway.config_identity import ExchangeConfig, ForwardConfig, SignedConfig
from perdure.gateway.health import HealthBounds
from perdure.gateway.retrying import Safe
from tests.gateway.support import fronting
from tests.wire.support import ROOT

PAGE = (ROOT / "docs/howto/gateway.md").read_text("utf-8")
TABLES: dict[str, tuple[type[Any], ...]] = {
    "auth": (AuthConfig,),
    "backends.NAME": (BackendConfig,),
    "backends.NAME.identity": (SignedConfig, ExchangeConfig, ForwardConfig),
    "backends.NAME.timeouts": (Timeouts,),
    "backends.NAME.retry": (Safe,),
    "backends.NAME.breaker": (BreakerBounds,),
    "backends.NAME.health": (HealthBounds,),
}
ELSEWHERE = {"name", "timeouts", "identity", "breaker", "retry", "health", "confirm", "client_secret"}
"""Members that are tables of their own, or no keys."""


def keys(table: str) -> str:
    """The row of a table of the file."""
    (row,) = [line for line in PAGE.splitlines() if line.startswith(f"| `[{table}]` |")]
    return row


@pytest.mark.parametrize("table", TABLES)
def test_the_page_has_every_key_of_a_table(table: str) -> None:
    wanted = {each.name for kind in TABLES[table] for each in fields(kind)} - ELSEWHERE
    assert {name for name in wanted if f"`{name}`" not in keys(table)} == set()


def test_the_page_has_every_key_of_the_gateway_itself() -> None:
    said = keys("gateway") + keys("limits") + keys("routes")
    wanted = {each.name for each in fields(GatewayConfig)} - {"backends", "auth"}
    assert {name for name in wanted if f"`{name}`" not in said} == set()


async def test_the_metrics_that_the_page_names_are_those_that_there_are() -> None:
    async with fronting({"gone": "http://127.0.0.1:9/mcp"}) as front:
        there = set(re.findall(r"^# TYPE (\S+) ", front.gateway.exposition(), re.MULTILINE))
    assert set(re.findall(r"`(perdure_gateway_\w+)", PAGE)) == there
