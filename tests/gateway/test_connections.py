"""How requests go over a connection, directly and by a proxy."""

import asyncio
import math
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import h11
import httpx2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from hypothesis import assume, given
from hypothesis import strategies as st

from perdure.gateway import connections
from perdure.gateway.connections import Connections
from perdure.gateway.faults import BackendTimeout, BackendUnavailable
from perdure.gateway.hops import OURS
from perdure.gateway.upstream import Bounds, Upstream
from tests.support import PATIENCE

from .raw_backend import Asked, Liar, liar, response, result
from .upstreams import BOUNDS, answers, ask, hangs, says

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def to(url: str, write: float = 5.0) -> AsyncGenerator[Connections]:
    there = Connections(httpx2.URL(url), None, connect=5.0, write=write, kept=5.0)
    yield there
    await there.aclose()


@asynccontextmanager
async def serving(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncGenerator[str]:
    """The URL of a server that serves each connection so, and closes it at the end of the block."""
    writers: list[asyncio.StreamWriter] = []

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        await serve(reader, writer)

    async with await asyncio.start_server(connected, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
        for writer in writers:
            writer.transport.abort()


async def test_a_request_goes_out_in_one_piece() -> None:
    pieces: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pieces.append(await reader.read(1 << 16))
        writer.write(response(b"{}"))

    async with serving(serve) as url, to(url) as there:
        answer = await there.send([(b"x-one", b"1")], b'{"whole":1}', math.inf)
        await answer.aclose()
    (piece,) = pieces
    assert piece.startswith(b"POST /mcp HTTP/1.1\r\n")
    assert piece.endswith(b'\r\n\r\n{"whole":1}')


async def test_no_more_is_read_than_somebody_takes() -> None:
    """A client that reads slowly slows its backend down."""
    whole, written = 8 << 20, 0

    async def pours(_asked: Asked, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        writer.write(f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {whole}\r\n\r\n".encode())
        while written < whole:
            writer.write(bytes(1 << 16))
            written += 1 << 16
            await writer.drain()

    async with liar(pours) as backend, to(backend.url) as there:
        answer = await there.send([], b"{}", math.inf)
        before = -1
        while before < written:  # until it can't go on
            before = written
            await asyncio.sleep(0.05)
        assert written < whole
        taken = 0
        while (data := await answer.read(math.inf)) is not None:
            taken += len(data)
        assert taken == whole
        await answer.aclose()


AT_ONCE = 1_000
"""Bytes, where no more than a tenth of that are read ahead."""


@pytest.mark.parametrize("size", [1, AT_ONCE])
@pytest.mark.parametrize("together", [True, False], ids=["in one piece with an answer", "later"])
async def test_an_answer_that_nobody_asked_for_is_not_the_next_requests(
    together: bool, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients share connections, and all of them begin to count at 1: somebody else's answer would pass for theirs."""
    monkeypatch.setattr(connections, "_HIGH", AT_ONCE // 10)
    served, hung_up = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"{}")
        writer.write(response(b"1" * size) + (response(b"2") if together else b""))
        await served.wait()
        writer.write(b"" if together else response(b"2"))
        assert not await reader.read()
        hung_up.set()

    async with serving(serve) as url, to(url) as there:
        for _ in range(2):
            answer = await there.send([], b"{}", math.inf)
            assert [await answer.read(math.inf) for _ in range(2)] == [b"1" * size, None]
            await answer.aclose()
            served.set()
            await asyncio.wait_for(hung_up.wait(), PATIENCE)


async def test_what_comes_while_nobody_reads_is_not_the_next_requests_either(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not read ahead lies in the kernel, where nobody sees it until the next request waits for its answer."""
    monkeypatch.setattr(connections, "_HIGH", AT_ONCE // 10)
    begun, hung_up = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"{}")
        whole = response(b"1" * AT_ONCE)
        writer.write(whole[:-AT_ONCE])
        await begun.wait()
        writer.write(whole[-AT_ONCE:])
        await _rounds(10)
        writer.write(response(b"2"))
        with suppress(ConnectionResetError):  # who closes on what it has not read resets
            assert not await reader.read()
        hung_up.set()

    async with serving(serve) as url, to(url) as there:
        for _ in range(2):
            answer = await there.send([], b"{}", math.inf)
            begun.set()
            await _rounds(20)
            assert [await answer.read(math.inf) for _ in range(2)] == [b"1" * AT_ONCE, None]
            await answer.aclose()
            await asyncio.wait_for(hung_up.wait(), PATIENCE)


@pytest.mark.parametrize("size", [1, AT_ONCE])
async def test_a_backend_that_hangs_up_while_its_connection_rests_is_asked_on_another(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the one that it has left a request would be lost, and nobody could say whether it was carried out."""
    monkeypatch.setattr(connections, "_HIGH", AT_ONCE // 10)
    leaves, left = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"{}")
        writer.write(response(b"1" * size))
        await leaves.wait()
        writer.write_eof()
        assert not await reader.read()
        left.set()

    async with serving(serve) as url, to(url) as there:
        for _ in range(2):
            answer = await there.send([], b"{}", math.inf)
            assert [await answer.read(math.inf) for _ in range(2)] == [b"1" * size, None]
            await answer.aclose()
            leaves.set()
            await asyncio.wait_for(left.wait(), PATIENCE)


async def test_a_large_answer_costs_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_HIGH", AT_ONCE // 10)
    async with liar(says(response(b"1" * AT_ONCE))) as backend, to(backend.url) as there:
        for _ in range(3):
            answer = await there.send([], b"{}", math.inf)
            assert [await answer.read(math.inf) for _ in range(2)] == [b"1" * AT_ONCE, None]
            await answer.aclose()
        assert backend.connections == 1


async def _asked(there: Connections) -> None:
    """Once, so that there is a connection."""
    answer = await there.send([], b"{}", math.inf)
    while await answer.read(math.inf) is not None:
        pass
    await answer.aclose()


def soon(seconds: float) -> float:
    return asyncio.get_running_loop().time() + seconds


async def _rounds(times: int) -> None:
    """Turns of the event loop, in each of which it reads what there is."""
    for _ in range(times):
        await asyncio.sleep(0)


async def test_a_backend_that_takes_nothing_in_is_given_up() -> None:
    async def deaf(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        pass

    async with serving(deaf) as url, to(url, write=0.1) as there:
        with pytest.raises(httpx2.WriteTimeout):
            await there.send([], bytes(32 << 20), math.inf)


@pytest.mark.parametrize("size", [2, 32 << 20])
async def test_a_deadline_holds_for_writing_and_reading_alike(size: int) -> None:
    async def answers_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"{}")
        writer.write(response(b"{}"))

    async with serving(answers_once) as url, to(url, write=PATIENCE) as there:
        await _asked(there)
        with pytest.raises(httpx2.ReadTimeout):
            await there.send([], bytes(size), soon(0.1))


async def test_a_deadline_holds_for_connecting_and_says_nothing_of_the_backend() -> None:
    async def deaf(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        """And so no TLS is agreed upon."""

    async with serving(deaf) as url:
        for connect, error in ((PATIENCE, httpx2.PoolTimeout), (0.1, httpx2.ConnectTimeout)):
            trust = ssl.create_default_context()
            there = Connections(httpx2.URL(url), trust, connect=connect, write=PATIENCE, kept=PATIENCE)
            with pytest.raises(error):
                await there.send([], b"{}", soon(0.1) if connect == PATIENCE else math.inf)


async def test_a_deadline_holds_however_much_comes() -> None:
    async def chatters(_asked: Asked, writer: asyncio.StreamWriter) -> None:
        while len(backend.asked) > 1:
            writer.write(b"HTTP/1.1 102 Processing\r\n\r\n")
            await asyncio.sleep(0)
        writer.write(response(b"{}"))

    async with liar(chatters) as backend, to(backend.url) as there:
        await _asked(there)
        with pytest.raises(httpx2.ReadTimeout):
            await asyncio.wait_for(there.send([], b"{}", soon(0.1)), PATIENCE)


async def test_headers_of_one_name_are_one_header() -> None:
    async with liar(says(response(b"{}", x_a="1\r\nX-A: 2"))) as backend, to(backend.url) as there:
        answer = await there.send([], b"{}", math.inf)
        assert answer.headers["x-a"] == "1, 2"
        await answer.aclose()


@pytest.mark.parametrize("at", ["name", "value"])
@pytest.mark.parametrize("byte", [b"\r\n", b"\r", b"\n", b"\0", b"\v", b"\f", b"\r\n\r\n"], ids=repr)
async def test_a_header_that_would_be_two_is_not_sent(byte: bytes, at: str) -> None:
    async with liar(answers) as backend, to(backend.url) as there:
        for made in (b"1" + byte + b"x-two: 2", byte + b"1", b"1" + byte):
            header = (made, b"1") if at == "name" else (b"x-one", made)
            with pytest.raises(httpx2.LocalProtocolError):
                await there.send([(b"x-zero", b"0"), header], b"{}", math.inf)
        assert not backend.asked


@pytest.mark.parametrize("name", [b"host", b"Content-Length", b"transfer-encoding"])
async def test_where_a_request_ends_is_not_said_twice(name: bytes) -> None:
    async with liar(answers) as backend, to(backend.url) as there:
        with pytest.raises(httpx2.LocalProtocolError):
            await there.send([(name, b"2")], b"{}", math.inf)
        assert not backend.asked


@given(
    st.binary(max_size=4) | st.text("x-1:\t \r", max_size=4).map(str.encode),
    st.binary(max_size=6) | st.text("1:\t \r\n\x7f", max_size=6).map(str.encode),
)
def test_what_may_be_sent_is_what_h11_would_have_sent_and_in_the_same_bytes(name: bytes, value: bytes) -> None:
    assume(name.lower() not in (b"host", b"content-length", b"transfer-encoding"))
    there = Connections(httpx2.URL("http://b.example/mcp"), None, connect=1.0, write=1.0, kept=1.0)
    headers = [(b"host", b"b.example"), *OURS, (name, value), (b"content-length", b"7")]
    try:
        request = h11.Request(method="POST", target="/mcp", headers=headers)
    except h11.LocalProtocolError:
        with pytest.raises(httpx2.LocalProtocolError):
            there.head([(name, value)], 7)
    else:
        assert there.head([(name, value)], 7) == h11.Connection(h11.CLIENT).send(request)


async def test_a_proxy_that_is_configured_is_asked_for_the_backend() -> None:
    async def answer(asked: Asked, writer: Any) -> None:
        unasked = response(result(asked, host="somebody else's"))
        writer.write(response(result(asked, host=asked.headers["host"])) + unasked)

    async with liar(answer) as proxy:
        address = proxy.url.removesuffix("/mcp")
        async with Upstream("b", "http://tools.example/mcp", BOUNDS, proxy=address) as upstream:
            for _ in range(2):
                reply = await ask(upstream)
                assert reply.message is not None
                assert reply.message["result"] == {"resultType": "complete", "host": "tools.example"}
        assert proxy.connections == 2


async def test_a_backend_that_hangs_behind_a_proxy_is_given_up_as_any_other() -> None:
    async with liar(hangs) as proxy:
        address, bounds = proxy.url.removesuffix("/mcp"), Bounds(read=5.0, total=0.1)
        async with Upstream("b", "http://tools.example/mcp", bounds, proxy=address) as upstream:
            with pytest.raises(BackendTimeout):
                await ask(upstream)


async def test_a_backend_is_spoken_to_over_tls_if_its_certificate_is_good(tmp_path: Path) -> None:
    served, trusted = _certified(tmp_path)
    made = Liar(answers)
    async with await asyncio.start_server(made.serve, "127.0.0.1", 0, ssl=served) as server:
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
        async with Upstream("b", url, BOUNDS, verify=trusted) as upstream:
            assert (await ask(upstream)).status == 200
        async with Upstream("b", url, BOUNDS) as upstream:
            with pytest.raises(BackendUnavailable):
                await ask(upstream)
    assert len(made.asked) == 1


def _certified(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """For a server at 127.0.0.1, and for who trusts it."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "b")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    file = folder / "b.pem"
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    file.write_bytes(private + certificate.public_bytes(Encoding.PEM))
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(file)
    return served, ssl.create_default_context(cafile=str(file))
