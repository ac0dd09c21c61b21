"""A link passes everything on until it is told not to, and afterwards again."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from chaos.links import Link
from perdure.testing.postgresql.programs import free_port
from tests.support import PATIENCE, eventually

LATER = 0.1


class Echo:
    """A server that says everything once more."""

    def __init__(self) -> None:
        self.heard = b""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(100):
                self.heard += data
                writer.write(data)
        except OSError:
            pass
        finally:
            writer.close()


class Caller:
    """A connection through the link."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    def say(self, data: bytes) -> None:
        self.writer.write(data)

    async def hear(self, within: float = PATIENCE) -> bytes:
        """Empty once the connection is over, however that came about."""
        async with asyncio.timeout(within):
            try:
                return await self._reader.read(100)
            except ConnectionError:
                return b""


@asynccontextmanager
async def linked() -> AsyncGenerator[tuple[Link, Echo]]:
    echo = Echo()
    async with await asyncio.start_server(echo.serve, "127.0.0.1", 0) as server:
        link = Link(free_port(), server.sockets[0].getsockname()[1])
        await link.listen()
        try:
            yield link, echo
        finally:
            await link.close()


@asynccontextmanager
async def called(link: Link) -> AsyncGenerator[Caller]:
    caller = Caller(*await asyncio.open_connection("127.0.0.1", link.port))
    try:
        caller.say(b"hello")
        assert await caller.hear() == b"hello"
        yield caller
    finally:
        caller.writer.close()


async def test_what_is_held_back_arrives_in_the_end() -> None:
    async with linked() as (link, echo), called(link) as caller:
        assert link.met == 0
        async with link.parted():
            caller.say(b" late")
            with pytest.raises(TimeoutError):
                await caller.hear(within=LATER)
            assert echo.heard == b"hello"
        assert await caller.hear() == b" late"
        assert link.met


async def test_who_is_deaf_is_heard_and_cut_off() -> None:
    async with linked() as (link, echo), called(link) as caller:
        async with link.deaf():
            caller.say(b" there")
            await eventually(lambda: echo.heard == b"hello there", "it did not arrive")
        assert await caller.hear() == b""
    assert link.met


async def test_who_is_to_be_deaf_after_a_word_hears_until_then() -> None:
    async with linked() as (link, echo), called(link) as caller:
        async with link.deaf(b"COMMIT"):
            caller.say(b" BEGIN")
            assert await caller.hear() == b" BEGIN"
            assert link.met == 0
            caller.say(b" COMMIT")
            await eventually(lambda: echo.heard.endswith(b"COMMIT"), "it did not arrive")
        assert await caller.hear() == b""
    assert link.met


async def test_all_connections_can_be_cut_and_others_be_made() -> None:
    async with linked() as (link, _):
        async with called(link) as one, called(link) as two:
            link.cut()
            assert link.met == 2
            assert [await one.hear(), await two.hear()] == [b"", b""]
        async with called(link):
            pass


async def test_a_slow_link_is_slow() -> None:
    async with linked() as (link, _), called(link) as caller, link.slow(LATER):
        before = asyncio.get_running_loop().time()
        caller.say(b"!")
        await caller.hear()
        assert asyncio.get_running_loop().time() - before >= 2 * LATER  # there and back


async def test_who_refuses_takes_no_more_connections_until_it_listens_again() -> None:
    async with linked() as (link, _), called(link) as caller:
        link.refuse()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", link.port)
        caller.say(b"!")
        assert await caller.hear() == b"!"
        await link.listen()
        async with called(link):
            pass


async def test_without_a_server_behind_it_connections_break() -> None:
    link = Link(free_port(), free_port())
    await link.listen()
    try:
        caller = Caller(*await asyncio.open_connection("127.0.0.1", link.port))
        assert await caller.hear() == b""
        caller.writer.close()
    finally:
        await link.close()
