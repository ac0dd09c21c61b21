"""Traces that cross the gateway: a span of its own for each request, and the requests to backends as children of it.

A client's trace comes in `_meta` or, without one there, in headers (W3C Trace Context); it goes on in both, since
servers look at either. The spans are those of the SDK's server in kind and words. They hold what metrics hold (the
method if it is one that is known, the backend, the code of an error), and no name, no argument, no id and no text.

Without an implementation of OpenTelemetry in the process there are no spans, and what came goes on as it came. Whether
there is one is asked at the start: the answer costs as much as parsing a request.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

from opentelemetry.context import Context
from opentelemetry.propagate import extract, get_global_textmap, inject
from opentelemetry.trace import (
    INVALID_SPAN,
    ProxyTracerProvider,
    Span,
    SpanKind,
    StatusCode,
    Tracer,
    get_current_span,
    get_tracer,
    get_tracer_provider,
)

from perdure.domain.model import JSONObject

__all__ = ["TRACER", "carried", "ended", "of_process", "of_request"]

TRACER: Final = "perdure-gateway"
"""The name of the instrumentation."""

_META: Final = "_meta"
_BAGGAGE: Final = "baggage"
"""Not ours to write anew: it goes on in whatever way it came."""
_OTHER: Final = "other"
_NONE: Final = nullcontext(INVALID_SPAN)


def of_process() -> Tracer | None:
    """Makes spans by the implementation that is set in the process just now; None: there is none."""
    return None if isinstance(get_tracer_provider(), ProxyTracerProvider) else get_tracer(TRACER)


def of_request(
    tracer: Tracer | None, method: str | None, meta: JSONObject, headers: Mapping[str, str]
) -> AbstractContextManager[Span]:
    """The span of one request, if there is a `tracer`. `method`: None if the gateway knows it not."""
    if tracer is None:
        return _NONE
    name = method or _OTHER
    return tracer.start_as_current_span(
        name,
        kind=SpanKind.SERVER,
        attributes={"mcp.method.name": name},
        context=_joined(meta) or _joined(headers),
        record_exception=False,
        set_status_on_exception=False,
    )


def ended(span: Span, backend: str | None, said: JSONObject | None) -> None:
    """What became of the request: which backend it was for, and the code of the error that was the answer."""
    if not span.is_recording():
        return
    if backend is not None:
        span.set_attribute("perdure.gateway.backend", backend)
    error = None if said is None else said.get("error")
    if isinstance(error, dict):
        code = str(error.get("code"))
        span.set_attributes({"error.type": code, "rpc.response.status_code": code})
        span.set_status(StatusCode.ERROR)


def carried(message: JSONObject, headers: Mapping[str, str]) -> tuple[JSONObject, Mapping[str, str]]:
    """A message to a backend and its headers, as a child of the span that is current, if that is one of ours."""
    current = get_current_span().get_span_context()
    if not current.is_valid or current.is_remote:
        return message, headers
    carrier: dict[str, str] = {}
    inject(carrier)
    carrier.pop(_BAGGAGE, None)
    params = message.get("params")
    meta = params.get(_META) if isinstance(params, dict) else None
    if isinstance(params, dict) and isinstance(meta, dict):
        message = {**message, "params": {**params, _META: {**meta, **carrier}}}
    return message, {**headers, **carrier}


def _joined(carrier: Mapping[str, Any]) -> Context | None:
    """The trace that a carrier holds; None: none that is good."""
    said = {name: text for name in get_global_textmap().fields if isinstance(text := carrier.get(name), str)}
    context = extract(said) if said else None
    return context if context is not None and get_current_span(context).get_span_context().is_valid else None
