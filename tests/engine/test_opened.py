"""The store of a process, and who may use it from which event loop."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import pytest

from perdure.domain.errors import ConfigurationError, StoreUnavailable, TaskNotFound
from perdure.engine import opened
from perdure.engine.opened import Opened
from perdure.engine.runtime import Options, Runtime
from perdure.store.base import Outsiders, Store
from tests.engine.rigged import Rigged
from tests.support import PATIENCE, eventually


class Words:
    """Says something that no store knows what to make of, and remembers where it was heard."""

    def __init__(self) -> None:
        self.heard: list[asyncio.AbstractEventLoop] = []

    async def __call__(self, store: Outsiders) -> None:
        self.heard.append(asyncio.get_running_loop())
        with pytest.raises(TaskNotFound):
            await store.tell("tsk_none", "0", "token", "half way")


async def said(each: Opened, word: opened.Word) -> asyncio.AbstractEventLoop:
    await each.say(word)
    return asyncio.get_running_loop()


async def elsewhere(saying: Awaitable[object]) -> object:
    """What it comes to on an event loop of its own, in a thread."""

    async def awaited() -> object:
        return await saying

    async with asyncio.timeout(PATIENCE):
        return await asyncio.to_thread(lambda: asyncio.run(awaited()))


@pytest.fixture
def closed(rigged: Rigged) -> Opened:
    return Opened(lambda: rigged)


async def test_what_is_said_on_another_event_loop_is_heard_where_the_store_is_open(store: Store) -> None:
    words, each = Words(), Opened(lambda: Rigged(store))
    async with each.here():
        await elsewhere(said(each, words))
    assert words.heard == [asyncio.get_running_loop()]


async def test_where_nobody_has_it_open_it_is_opened_for_the_word(rigged: Rigged, closed: Opened) -> None:
    words = Words()
    there = await elsewhere(said(closed, words))
    assert words.heard == [there]
    await closed.say(words)
    assert words.heard[1:] == [asyncio.get_running_loop()]
    assert rigged.calls == ["open", "tell", "close"] * 2


async def test_an_error_that_comes_of_it_is_raised_where_it_was_said(closed: Opened) -> None:
    async with closed.here():
        with pytest.raises(TaskNotFound):
            await elsewhere(closed.say(lambda store: store.tell("tsk_none", "0", "token", "half way")))


async def test_a_server_does_not_begin_beside_another_event_loop_that_has_the_store(rigged: Rigged) -> None:
    runtime = Runtime(rigged, {}, Options(worker=False))

    async def serve() -> None:
        async with runtime.running():
            raise AssertionError

    async with runtime.connected():
        with pytest.raises(ConfigurationError, match="another event loop"):
            await elsewhere(serve())
    assert rigged.calls == ["open", "close"]


async def test_many_words_are_said_while_it_is_kept_open_by_whoever_has_it(rigged: Rigged, closed: Opened) -> None:
    words = Words()

    async def many() -> None:
        async with closed.somewhere():
            for _ in range(3):
                await closed.say(words)

    await many()
    async with closed.here():
        await elsewhere(many())
    assert rigged.calls == ["open", *["tell"] * 3, "close"] * 2
    assert set(words.heard) == {asyncio.get_running_loop()}


async def test_a_word_that_comes_while_the_store_is_being_closed_has_it_opened_again(rigged: Rigged) -> None:
    words, closing, came = Words(), rigged.gate_before("close"), list[str]()

    def store() -> Store:
        came.append("somebody")
        return rigged

    closed = Opened(store)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(closed.here())
        leaving = asyncio.create_task(stack.pop_all().aclose())
    await closing.reached()
    saying = asyncio.create_task(elsewhere(said(closed, words)))
    await eventually(lambda: len(came) == 2, "the word did not come")
    assert words.heard == []
    closing.open()
    await leaving
    await saying
    assert rigged.calls == ["open", "close", "open", "tell", "close"]


async def test_of_several_who_leave_at_once_the_last_one_closes_it_and_then_it_may_be_anybodys(
    rigged: Rigged, closed: Opened
) -> None:
    closing = rigged.gate_before("close")

    async def use() -> None:
        async with closed.here():
            pass

    using = [asyncio.create_task(use()) for _ in range(3)]
    await closing.reached()
    closing.open()
    await asyncio.gather(*using)
    words = Words()
    assert await elsewhere(said(closed, words)) == words.heard[0] != asyncio.get_running_loop()
    assert rigged.calls.count("open") == rigged.calls.count("close")


async def test_a_word_outlives_the_event_loop_that_it_had_gone_over_to(rigged: Rigged, closed: Opened) -> None:
    """Two threads that do nothing but say something: the one that came first does not wait for the other."""
    words, entered, may_end = Words(), threading.Event(), threading.Event()
    heard_there = rigged.gate_before("tell")

    async def first() -> None:
        async with closed.here():
            entered.set()
            assert await asyncio.to_thread(may_end.wait, PATIENCE)

    there = asyncio.create_task(elsewhere(first()))
    await eventually(entered.is_set, "it was not opened")
    saying = asyncio.create_task(closed.say(words))
    await eventually(lambda: len(words.heard) == 1, "it did not go over")
    may_end.set()
    await there
    async with asyncio.timeout(PATIENCE):
        await saying
    assert words.heard[1] == asyncio.get_running_loop() != words.heard[0]
    heard_there.open()


class Late(asyncio.SelectorEventLoop):
    """One that has left the store when it comes to what was handed to it; and then it begins that, or not even so."""

    def __init__(self, closed: Opened, *, begins: bool) -> None:
        super().__init__()
        self._begins = begins
        self._ready_for = list[Callable[[], object]]()
        self._opened = closed
        self._leaving = AsyncExitStack()

    def have_it(self) -> None:
        self.run_until_complete(self._leaving.enter_async_context(self._opened.here()))

    def _end(self) -> None:
        self.run_until_complete(self._leaving.aclose())
        if self._begins:
            for begin in self._ready_for:
                self.call_soon(begin)
            self.run_until_complete(asyncio.sleep(0))
        self.close()

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: Any, context: Any = None) -> Any:
        self._ready_for.append(partial(callback, *args))
        thread = threading.Thread(target=self._end)
        thread.start()
        thread.join(PATIENCE)


@pytest.mark.parametrize("begins", [False, True])
async def test_so_does_one_that_the_event_loop_comes_to_after_it_has_left_the_store(
    rigged: Rigged, closed: Opened, begins: bool
) -> None:
    words = Words()
    await asyncio.to_thread(Late(closed, begins=begins).have_it)
    async with asyncio.timeout(PATIENCE):
        await closed.say(words)
    assert words.heard == [asyncio.get_running_loop()]
    assert rigged.calls == ["open", "close", "open", "tell", "close"]


@pytest.mark.parametrize("ended", [True, False])
async def test_an_event_loop_that_does_not_answer_is_not_waited_for_for_ever(
    rigged: Rigged, closed: Opened, monkeypatch: pytest.MonkeyPatch, ended: bool
) -> None:
    """It was closed without leaving anything behind in order, or nobody runs it."""
    monkeypatch.setattr(opened, "_ANSWER", 0.05)
    stack, loop = AsyncExitStack(), asyncio.new_event_loop()

    async def enter() -> None:
        await stack.enter_async_context(closed.here())

    await asyncio.to_thread(loop.run_until_complete, enter())
    if ended:
        loop.close()
    with pytest.raises(StoreUnavailable, match="does not answer"):
        await closed.say(Words())
    if not ended:
        await asyncio.to_thread(loop.run_until_complete, stack.aclose())
        loop.close()


async def test_a_thread_that_the_event_loop_waits_for_gets_an_error_and_not_nothing_for_ever(
    closed: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opened, "_ANSWER", 0.05)
    errors = list[Exception]()

    def work() -> None:
        try:
            asyncio.run(closed.say(Words()))
        except StoreUnavailable as error:
            errors.append(error)

    async with closed.here():
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert len(errors) == 1


async def test_whoever_is_cancelled_while_it_is_said_takes_it_back(rigged: Rigged, closed: Opened) -> None:
    telling, gone = rigged.gate_before("tell"), asyncio.Event()

    async def word(store: Outsiders) -> None:
        try:
            await store.tell("tsk_none", "0", "token", "half way")
        finally:
            gone.set()

    async def hasty() -> None:
        saying = asyncio.create_task(closed.say(word))
        await asyncio.sleep(0)
        asyncio.run_coroutine_threadsafe(telling.reached(), home).result(PATIENCE)
        saying.cancel()
        with pytest.raises(asyncio.CancelledError):
            await saying

    home = asyncio.get_running_loop()
    async with closed.here():
        await elsewhere(hasty())
        async with asyncio.timeout(PATIENCE):
            await gone.wait()
    assert rigged.calls == ["open", "tell", "close"]


@pytest.mark.parametrize("kept_open", [True, False])
async def test_threads_that_all_say_something_at_once_are_all_heard(rigged: Rigged, kept_open: bool) -> None:
    each, said_by = Opened(lambda: rigged), list[tuple[int, int]]()

    async def thread(number: int) -> None:
        async def word(store: Outsiders) -> None:
            with pytest.raises(TaskNotFound):
                await store.tell("tsk_none", "0", "token", "half way")

        for time in range(5):
            await each.say(word)
            said_by.append((number, time))

    async with AsyncExitStack() as stack:
        if kept_open:
            await stack.enter_async_context(each.here())
        await asyncio.gather(*(elsewhere(thread(number)) for number in range(4)))
    assert sorted(said_by) == [(number, time) for number in range(4) for time in range(5)]
    assert rigged.calls.count("open") == rigged.calls.count("close")
    assert kept_open is False or rigged.calls.count("open") == 1
