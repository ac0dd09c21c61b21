"""How a response leaves: head and body together, and nothing that is written alone waits for more."""

import asyncio
import socket
from typing import Any

import uvicorn

from perdure.ops.http import HTTPServer
from tests.support import PATIENCE

_REQUEST = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"


class Pieces(asyncio.Protocol):
    """What comes, as it comes."""

    def __init__(self) -> None:
        self.came: asyncio.Queue[bytes] = asyncio.Queue()

    def data_received(self, data: bytes) -> None:
        self.came.put_nowait(data)

    async def next(self) -> bytes:
        return await asyncio.wait_for(self.came.get(), PATIENCE)


async def _asked(app: Any, request: bytes = _REQUEST) -> tuple[Pieces, asyncio.Transport]:
    """What a client of the server on `app` gets, having asked once."""
    config = uvicorn.Config(app, lifespan="off", log_level="warning")
    server = HTTPServer(config, lambda: None)
    config.load()
    here, there = socket.socketpair()
    loop = asyncio.get_running_loop()

    def protocol() -> asyncio.Protocol:
        made: Any = config.http_protocol_class
        return made(config=config, server_state=server.server_state, app_state={})

    await loop.connect_accepted_socket(protocol, there)
    transport, pieces = await loop.create_connection(Pieces, sock=here)
    transport.write(request)
    return pieces, transport


async def test_head_and_body_come_together() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        head = [(b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": b"ok"})

    pieces, transport = await _asked(app)
    for again in (True, False):
        piece = await pieces.next()
        assert piece.startswith(b"HTTP/1.1 200 OK\r\n")
        assert piece.endswith(b"\r\n\r\nok")
        if again:
            transport.write(_REQUEST)
    transport.abort()


async def test_an_event_of_a_stream_does_not_wait_for_the_next() -> None:
    go_on = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for event in (b"one", b"two"):
            await send({"type": "http.response.body", "body": event, "more_body": True})
            await go_on.wait()
            go_on.clear()
        await send({"type": "http.response.body", "body": b"end"})

    pieces, transport = await _asked(app)
    assert (await pieces.next()).endswith(b"one\r\n")
    go_on.set()
    assert await pieces.next() == b"3\r\ntwo\r\n"
    go_on.set()
    assert await pieces.next() == b"3\r\nend\r\n0\r\n\r\n"
    transport.abort()


async def test_what_was_written_before_the_end_of_a_connection_is_sent() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"connection", b"close")]})
        await send({"type": "http.response.body", "body": b"last"})

    pieces, transport = await _asked(app)
    said = await pieces.next()
    while b"0\r\n\r\n" not in said:
        said += await pieces.next()
    assert b"last" in said
    transport.abort()


async def test_who_answers_a_request_whose_body_is_refused_meanwhile_hears_of_no_error() -> None:
    answered: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        try:
            await send({"type": "http.response.start", "status": 401, "headers": []})
            await send({"type": "http.response.body", "body": b""})
        except Exception as error:  # noqa: BLE001 - whatever it is
            answered.set_result(error)
        else:
            answered.set_result(None)

    chunked = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nno: chunk\r\n\r\n"
    pieces, transport = await _asked(app, chunked)
    assert (await pieces.next()).startswith(b"HTTP/1.1 400 ")
    assert await asyncio.wait_for(answered, PATIENCE) is None
    transport.abort()
