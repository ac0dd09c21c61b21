"""What `Tasks` is told is checked at once, and each mistake is one sentence that says what to write."""

from functools import partial
from typing import Any

import pytest

from perdure import ConfigurationError, InvalidDuration, Owner, Tasks
from perdure.domain.limits import Limits
from perdure.engine.runtime import Options
from perdure.store.memory import MemoryStore


def anybody(_: object) -> Owner:
    return Owner("acme", "ada")


async def nobody_yet(_: object) -> Owner:
    return Owner("acme", "ada")


class Later:
    async def __call__(self, _: object) -> Owner:
        return Owner("acme", "ada")


OWNER = Owner("acme", "ada")
ASYNC = "identify is an async function: write a plain one, and look up in the token verifier what has to be looked up"
CLAIM = "write the name of a claim of the token, or leave it out"

MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"concurrency": 0}, "concurrency is 0: write a whole number, at least 1"),
    ({"concurrency": True}, "concurrency is True: write a whole number, at least 1"),
    ({"concurrency": "4"}, "concurrency is '4': write a whole number, at least 1"),
    ({"backlog": 0}, "backlog is 0: write a whole number, at least 1, or None for no bound"),
    (
        {"tenant_backlog": 1.5},
        "tenant_backlog is 1.5: write a whole number, at least 1, or None for no bound, or a share as '10%'",
    ),
    (
        {"owner_tasks": "0%"},
        "owner_tasks is '0%': write a whole number, at least 1, or None for no bound, or a share as '10%'",
    ),
    (
        {"owner_subscribed_tasks": "101%"},
        "owner_subscribed_tasks is '101%': write a whole number, at least 1, or None for no bound, or a share as '10%'",
    ),
    ({"subscriptions": 0}, "subscriptions is 0: write a whole number, at least 1, or None for no bound"),
    (
        {"owner_subscriptions": True},
        "owner_subscriptions is True: write a whole number, at least 1, or None for no bound, or a share as '10%'",
    ),
    ({"subscribed_tasks": 0}, "subscribed_tasks is 0: write a whole number, at least 1, or None for no bound"),
    (
        {"owner_tasks": -1},
        "owner_tasks is -1: write a whole number, at least 1, or None for no bound, or a share as '10%'",
    ),
    ({"polls": "many"}, "polls is 'many': write a whole number, at least 1, or None for no bound"),
    ({"owner_polls": 0}, "owner_polls is 0: write a whole number, at least 1, or None for no bound"),
    ({"queues": "slow"}, "queues is 'slow': write a list of names, or a mapping of names to numbers"),
    ({"queues": 3}, "queues is 3: write a list of names, or a mapping of names to numbers"),
    ({"queues": []}, "queues is empty: name a queue, or leave it out to serve all of them"),
    ({"queues": {}}, "queues is empty: name a queue, or leave it out to serve all of them"),
    ({"queues": ["slow", ""]}, "queues has '': a queue's name is a text that is not empty"),
    ({"queues": {7: 1}}, "queues has 7: a queue's name is a text that is not empty"),
    ({"queues": {"slow": 0}}, "queues['slow'] is 0: write a whole number, at least 1, or None for no bound"),
    ({"identify": "x"}, "identify is 'x': write a function from the request to its Owner"),
    ({"identify": OWNER}, f"identify is {OWNER!r}: write a function from the request to its Owner"),
    ({"identify": nobody_yet}, ASYNC),
    ({"identify": partial(nobody_yet)}, ASYNC),
    ({"identify": Later()}, ASYNC),
    ({"tenant_claim": ""}, f"tenant_claim is '': {CLAIM}"),
    ({"tenant_claim": " "}, f"tenant_claim is ' ': {CLAIM}"),
    ({"tenant_claim": ["org"]}, f"tenant_claim is ['org']: {CLAIM}"),
    ({"limits": {"entries": 5}}, "limits is {'entries': 5}: write Limits(entries=…)"),
    (
        {"identify": anybody, "tenant_claim": "org"},
        "tenant_claim is for the default identify, and there is another one: say the tenant in the Owner that it"
        " returns",
    ),
]


@pytest.mark.parametrize(("options", "said"), MISTAKES, ids=[said for _, said in MISTAKES])
def test_an_option_that_can_not_be_is_refused_in_one_sentence(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        Tasks(MemoryStore(), **options)
    assert str(refused.value) == said


def test_a_cleanup_is_a_duration() -> None:
    with pytest.raises(InvalidDuration, match="cleanup: 'soon' is no duration"):
        Tasks(MemoryStore(), cleanup="soon")


def test_the_options_reach_the_engine() -> None:
    limits = Limits(entries=5)
    tasks = Tasks(
        MemoryStore(),
        queues=["slow", "quick"],
        backlog=None,
        tenant_backlog=7,
        owner_tasks=9,
        polls=None,
        owner_polls=6,
        subscriptions=None,
        owner_subscriptions=3,
        subscribed_tasks=5,
        owner_subscribed_tasks=4,
        limits=limits,
        cleanup="3s",
        lease="2s",
    )
    assert tasks.assembly.options == Options(
        queues={"slow": None, "quick": None},
        backlog=None,
        tenant_backlog=7,
        owner_tasks=9,
        polls=None,
        owner_polls=6,
        subscriptions=None,
        owner_subscriptions=3,
        subscribed_tasks=5,
        owner_subscribed_tasks=4,
        limits=limits,
        cleanup_ms=3000,
        lease_ms=2000,
    )
    assert Tasks(MemoryStore()).assembly.options == Options(), "the defaults are the engine's own"


SHARED = [
    ("owner_tasks", "backlog"),
    ("tenant_backlog", "backlog"),
    ("owner_subscriptions", "subscriptions"),
    ("owner_subscribed_tasks", "subscribed_tasks"),
]
"""What one may have, and what there is for all."""


@pytest.mark.parametrize(("part", "whole"), SHARED)
@pytest.mark.parametrize("of_all", [None, 10, 50_000])
def test_nobody_may_have_all_that_is_there_for_everybody_however_much_that_is(
    part: str, whole: str, of_all: int | None
) -> None:
    said: dict[str, Any] = {} if of_all is None else {whole: of_all}
    options = Tasks(MemoryStore(), identify=anybody, **said).assembly.options
    assert 1 <= getattr(options, part) <= getattr(options, whole) / 2


@pytest.mark.parametrize(("part", "whole"), SHARED)
def test_a_share_of_what_has_no_bound_is_none_and_one_of_little_is_something(part: str, whole: str) -> None:
    none: dict[str, Any] = {whole: None}
    assert getattr(Tasks(MemoryStore(), identify=anybody, **none).assembly.options, part) is None
    little: dict[str, Any] = {whole: 5, part: "1%"}
    assert getattr(Tasks(MemoryStore(), identify=anybody, **little).assembly.options, part) == 1


def test_a_share_of_a_tenant_is_none_where_all_are_one_tenant() -> None:
    assert Tasks(MemoryStore()).assembly.options.tenant_backlog is None
    assert Tasks(MemoryStore(), tenant_backlog=7).assembly.options.tenant_backlog == 7
    assert Tasks(MemoryStore(), tenant_claim="org").assembly.options.tenant_backlog == 5_000


def test_what_is_configured_later_replaces_what_the_program_says_and_nothing_else() -> None:
    tasks = Tasks(MemoryStore(), worker=False, concurrency=4, queues={"slow": 2})
    tasks.configure(worker=True)
    assert tasks.assembly.options == Options(worker=True, concurrency=4, queues={"slow": 2})
    tasks.configure(concurrency=9, queues={"quick": None})
    assert tasks.assembly.options == Options(worker=True, concurrency=9, queues={"quick": None})
    with pytest.raises(ConfigurationError, match="concurrency is -1"):
        tasks.configure(concurrency=-1)
