"""The servers, and what they leave behind."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from chaos.case import Case, Found
from chaos.history import EXTERNAL, TERMINAL

__all__ = ["a_server_keeps_to_the_contract", "logs_are_in_order", "no_process_ends_by_itself", "the_store_is_sound"]

UNAVAILABLE: Final = -32000
"""The one error that a well-made request may meet: try again later (contract 6)."""
_OF_CALLBACKS: Final = frozenset({HTTPStatus.CONFLICT, HTTPStatus.SERVICE_UNAVAILABLE})
"""The same for other systems; besides, that the work has ended otherwise."""


def a_server_keeps_to_the_contract(case: Case) -> Found:
    for exchange in case.exchanges:
        allowed = _OF_CALLBACKS if exchange.method == EXTERNAL else (UNAVAILABLE,)
        if exchange.error is None or exchange.error.get("code") in allowed:
            continue
        yield exchange.server, f"answered {exchange.method} with {exchange.error}"


def the_store_is_sound(case: Case) -> Found:
    store = case.store
    if store.integrity != "ok":
        yield "integrity_check", store.integrity
    if store.sessions or store.held:
        yield "leases", f"{store.sessions} sessions and {store.held} held runs outlived all processes"
    for row in store.rows.values():
        if row.runnable == (row.status in TERMINAL):
            yield row.label, f"it is {row.status}, and has {'a' if row.runnable else 'no'} run"


def no_process_ends_by_itself(case: Case) -> Found:
    for what in case.wrong:
        yield "the fleet", what


def logs_are_in_order(case: Case) -> Found:
    for what in case.oddities:
        yield "a log", what
