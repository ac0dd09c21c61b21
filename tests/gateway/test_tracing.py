"""Traces cross the gateway, as they cross a server of the SDK's, and hold nothing that a client chose."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, cast

import pytest
from opentelemetry.context import Context
from opentelemetry.trace import (
    NoOpTracerProvider,
    Span,
    SpanContext,
    StatusCode,
    TraceFlags,
    Tracer,
    get_current_span,
    use_span,
)

from perdure.gateway import tracing
from tests.gateway.raw_backend import Asked, liar, response, result
from tests.gateway.support import fronting
from tests.support import eventually
from tests.wire.envelopes import envelope, meta

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
CAME = f"00-{TRACE}-{PARENT}-01"


class Recorded(Span):
    """One span, as it was written down."""

    def __init__(self, name: str, parent: SpanContext, number: int, attributes: Any) -> None:
        trace = parent.trace_id if parent.is_valid else 7
        self.name = name
        self.parent = parent
        self.context = SpanContext(trace, number, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))
        self.attributes: dict[str, Any] = dict(attributes or {})
        self.status: Any = None
        self.is_over = False

    def end(self, end_time: int | None = None) -> None:
        self.is_over = True

    def get_span_context(self) -> SpanContext:
        return self.context

    def set_attributes(self, attributes: Any) -> None:
        self.attributes |= attributes

    def set_attribute(self, key: str, value: Any) -> None:
        self.attributes[key] = value

    def add_event(self, name: str, attributes: Any = None, timestamp: int | None = None) -> None:
        raise NotImplementedError

    def update_name(self, name: str) -> None:
        raise NotImplementedError

    def is_recording(self) -> bool:
        return not self.is_over

    def set_status(self, status: Any, description: str | None = None) -> None:
        self.status = (status, description)

    def record_exception(self, *args: Any, **options: Any) -> None:
        raise NotImplementedError


class Recorder(Tracer):
    """What an implementation of OpenTelemetry does, as far as it is needed to see what is written."""

    def __init__(self) -> None:
        self.spans: list[Recorded] = []

    def start_span(self, name: str, context: Context | None = None, *args: Any, **options: Any) -> Recorded:
        parent = get_current_span(context).get_span_context()
        span = Recorded(name, parent, len(self.spans) + 1, options.get("attributes"))
        self.spans.append(span)
        return span

    @contextmanager
    def _current(self, name: str, context: Context | None = None, *args: Any, **options: Any) -> Generator[Span]:
        options.pop("record_exception", None)
        with use_span(self.start_span(name, context, **options), end_on_exit=True, record_exception=False) as span:
            yield span

    start_as_current_span = cast("Any", _current)


class Backend:
    """Answers calls with an error if it is to."""

    def __init__(self) -> None:
        self.calls: list[Asked] = []
        self.error: Any = None

    async def answer(self, asked: Asked, writer: asyncio.StreamWriter) -> None:
        if asked.message["method"] == "server/discover":
            writer.write(response(result(asked, capabilities={"tools": {}})))
        else:
            self.calls.append(asked)
            error = {"jsonrpc": "2.0", "id": asked.message["id"], "error": self.error}
            writer.write(response(result(asked, content=[]) if self.error is None else error))
        await writer.drain()


async def called(backend: Backend, tracer: Recorder | None, extra: Any = None, **given: Any) -> Asked:
    """The call as it arrived at the backend."""
    params = {"name": "it_secret", "arguments": {"secret": 1}, "_meta": meta() | given}
    async with liar(backend.answer) as up, fronting({"it": up.url}, tracer=tracer) as front:
        await front.client.exchange(envelope("tools/call", params, id="secret"), extra)
        await eventually(lambda: tracer is None or tracer.spans[-1].is_over, "the span did not end")
    (asked,) = backend.calls
    return asked


async def test_a_request_to_a_backend_is_a_child_of_the_gateways_span_and_that_one_of_the_clients() -> None:
    recorder = Recorder()
    asked = await called(Backend(), recorder, traceparent=CAME, baggage="a=b")
    (span,) = recorder.spans
    assert (f"{span.parent.trace_id:032x}", f"{span.parent.span_id:016x}") == (TRACE, PARENT)
    ours = f"00-{TRACE}-{span.context.span_id:016x}-01"
    assert asked.message["params"]["_meta"]["traceparent"] == ours == asked.headers["traceparent"]
    assert asked.message["params"]["_meta"]["baggage"] == "a=b"


async def test_a_trace_may_come_in_headers_and_what_the_message_says_goes_first() -> None:
    recorder = Recorder()
    other = CAME.replace(TRACE, "1" * 32)
    await called(Backend(), recorder, {"traceparent": CAME})
    await called(Backend(), recorder, {"traceparent": other}, traceparent=CAME)
    assert [f"{span.parent.trace_id:032x}" for span in recorder.spans] == [TRACE, TRACE]


@pytest.mark.parametrize("wrong", ["nonsense", 5, None, ["x"], "00-" + "0" * 32 + "-" + "0" * 16 + "-01"])
async def test_a_trace_that_is_none_begins_a_new_one(wrong: Any) -> None:
    recorder = Recorder()
    asked = await called(Backend(), recorder, traceparent=wrong)
    (span,) = recorder.spans
    assert not span.parent.is_valid
    assert asked.message["params"]["_meta"]["traceparent"] == f"00-{7:032x}-{1:016x}-01"


async def test_without_an_implementation_what_came_goes_on_as_it_came() -> None:
    asked = await called(Backend(), None, {"traceparent": "00-anything"}, tracestate="a=b")
    assert asked.headers["traceparent"] == "00-anything"
    assert asked.message["params"]["_meta"]["tracestate"] == "a=b"
    asked = await called(Backend(), None, {"traceparent": CAME})
    assert (asked.headers["traceparent"], "traceparent" in asked.message["params"]["_meta"]) == (CAME, False)


async def test_a_span_says_the_method_the_backend_and_the_code_of_an_error_and_nothing_else() -> None:
    backend, recorder = Backend(), Recorder()
    backend.error = {"code": -32603, "message": "secret", "data": "secret"}
    await called(backend, recorder)
    (span,) = recorder.spans
    assert (span.name, span.status) == ("tools/call", (StatusCode.ERROR, None))
    assert span.attributes == {
        "mcp.method.name": "tools/call",
        "perdure.gateway.backend": "it",
        "error.type": "-32603",
        "rpc.response.status_code": "-32603",
    }


async def test_a_method_that_nobody_knows_is_not_named() -> None:
    recorder = Recorder()
    async with liar(Backend().answer) as up, fronting({"it": up.url}, tracer=recorder) as front:
        await front.client.exchange(envelope("secret/method"))
        await eventually(lambda: recorder.spans[-1].is_over, "the span did not end")
    (span,) = recorder.spans
    assert (span.name, span.attributes["mcp.method.name"]) == ("other", "other")


async def test_what_the_process_has_when_it_begins_to_serve_makes_the_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder()
    monkeypatch.setattr(tracing, "get_tracer_provider", NoOpTracerProvider)
    monkeypatch.setattr(tracing, "get_tracer", {tracing.TRACER: recorder}.__getitem__)
    await called(Backend(), None)
    (span,) = recorder.spans
    assert span.name == "tools/call"
