"""Sends spans to an OpenTelemetry collector (OTLP over HTTP); must not delay a job, nor hold a word of a document.

The SDK is the extra ``otel``. It is imported in the process that has a first span to tell (its sending thread does not
survive a fork), batches in a bounded queue, and drops what a collector that is away cannot take.
"""

from __future__ import annotations

import atexit
import logging
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import httpx

from tasks.contract.trace import span_of, trace_of
from tasks.ports.spans import Facts, NoSpans, Span, Spans, UntoldSpan

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span as SdkSpan
    from opentelemetry.trace import Tracer

log = logging.getLogger("kbw.trace")
NEEDED = "opentelemetry.exporter.otlp.proto.http"
SEND_S = 5.0
"""For one request with its retries."""
CLOSE_S = 2.0
_HERE = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True)
class Collector:
    """``endpoint``: base URL, ``/v1/traces`` is added. ``headers``: ``name=value,…``, URL-encoded, as OTLP says."""

    endpoint: str
    headers: str = ""
    service: str = "kbw"
    version: str = ""
    worker: str = ""


def is_installed() -> bool:
    """Whether the extra ``otel`` is there."""
    try:
        return find_spec(NEEDED) is not None
    except ModuleNotFoundError:
        return False


def problem_of(collector: Collector) -> str:
    """Why the collector takes no spans, ``""`` when it does; asked with a request that holds none."""
    headers = {"Content-Type": "application/x-protobuf", **dict(_headers(collector.headers))}
    try:
        answer = httpx.post(_address(collector), content=b"", headers=headers, timeout=CLOSE_S, trust_env=False)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return f"{shown_endpoint(collector)}: {type(error).__name__}"
    return "" if answer.is_success else f"{shown_endpoint(collector)} answers {answer.status_code}"


def headers_can_be_read(collector: Collector) -> bool:
    """Whether headers, which mostly hold a token, leave this machine without TLS."""
    parts = urlsplit(collector.endpoint)
    return bool(collector.headers) and parts.scheme == "http" and parts.hostname not in _HERE


def shown_endpoint(collector: Collector) -> str:
    """Its address without user and password."""
    before, _, after = collector.endpoint.rpartition("@")
    return f"{before.partition('://')[0]}://{after}" if before else after


def _address(collector: Collector) -> str:
    return f"{collector.endpoint.rstrip('/')}/v1/traces"


def open_spans(collector: Collector) -> Spans:
    """Where spans go: nowhere without an endpoint or without the extra (``kbw doctor`` tells)."""
    return OtlpSpans(collector) if collector.endpoint and is_installed() else NoSpans()


class OtlpSpans:
    """``Spans`` of one process."""

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self._lock = threading.Lock()
        self._opened: tuple[TracerProvider, Tracer] | None = None
        self._ids = _ChosenIds()

    def begin(self, name: str, traceparent: str) -> Span:
        """A span below the sender's."""
        try:
            return _OpenSpan(self._tracer().start_span(name, context=_parent(traceparent)))
        except Exception as error:  # noqa: BLE001 - telling must not fail what it tells of
            _untold(error)
            return UntoldSpan(traceparent)

    def whole(self, name: str, traceparent: str, began: float, facts: Facts, *, fault: str = "") -> None:
        """The first span of a trace."""
        try:
            tracer = self._tracer()
            with self._ids.naming(traceparent):
                span = tracer.start_span(name, context=_nothing(), start_time=int(began * 1e9))
            _OpenSpan(span).end(facts, fault=fault)
        except Exception as error:  # noqa: BLE001 - telling must not fail what it tells of
            _untold(error)

    def close(self) -> None:
        """Send the rest from a thread of its own: the SDK would wait much longer for a collector that is away."""
        with self._lock:
            opened, self._opened = self._opened, None
        if opened is not None:
            sender = threading.Thread(target=opened[0].shutdown, name="last-spans", daemon=True)
            sender.start()
            sender.join(CLOSE_S)

    def _tracer(self) -> Tracer:
        with self._lock:
            if self._opened is None:
                provider = _provider(self._collector, self._ids)
                self._opened = provider, provider.get_tracer("kbw", self._collector.version)
                atexit.register(self.close)
            return self._opened[1]


class _OpenSpan:
    def __init__(self, span: SdkSpan) -> None:
        self._span = span
        at = span.get_span_context()
        self.traceparent = f"00-{at.trace_id:032x}-{at.span_id:016x}-{at.trace_flags:02x}"

    def end(self, facts: Facts, *, fault: str = "") -> None:
        try:
            from opentelemetry.trace import Status, StatusCode

            self._span.set_attributes(dict(facts))
            if fault:
                self._span.set_status(Status(StatusCode.ERROR, fault))
            self._span.end()
        except Exception as error:  # noqa: BLE001 - telling must not fail what it tells of
            _untold(error)


def _provider(collector: Collector, ids: Any) -> TracerProvider:
    import requests
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    session = requests.Session()
    session.trust_env = False  # what is sent goes to the configured collector and nowhere else:
    session.max_redirects = 0  # no proxy of the environment, no redirect
    exporter = OTLPSpanExporter(
        endpoint=_address(collector),
        headers=dict(_headers(collector.headers)),
        timeout=SEND_S,
        session=session,
    )
    facts = {"service.name": collector.service, "service.version": collector.version}
    provider = TracerProvider(
        id_generator=ids,
        resource=Resource.create(facts | {"service.instance.id": collector.worker}),
        shutdown_on_exit=False,  # close() does it, in time
    )
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


def _headers(text: str) -> list[tuple[str, str]]:
    pairs = (part.partition("=") for part in text.split(",") if "=" in part)
    return [(unquote(name.strip()).lower(), unquote(value.strip())) for name, _, value in pairs]


def _parent(traceparent: str) -> Any:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator().extract({"traceparent": traceparent}, context=_nothing())


def _nothing() -> Any:
    from opentelemetry.context import Context

    return Context()


class _ChosenIds:
    """Random ids, but for a span that is to have the ids of a ``traceparent``. The SDK's ``IdGenerator``."""

    def __init__(self) -> None:
        self._named = threading.local()

    @contextmanager
    def naming(self, traceparent: str) -> Iterator[None]:
        self._named.ids = int(trace_of(traceparent), 16), int(span_of(traceparent), 16)
        try:
            yield
        finally:
            self._named.ids = None

    def generate_trace_id(self) -> int:
        named = getattr(self._named, "ids", None)
        return int(named[0]) if named else secrets.randbits(128) or 1

    def generate_span_id(self) -> int:
        named = getattr(self._named, "ids", None)
        return int(named[1]) if named else secrets.randbits(64) or 1

    def is_trace_id_random(self) -> bool:
        return True


def _untold(error: Exception) -> None:
    log.debug("span.untold", extra={"kbw": {"reason": f"{type(error).__name__}: {error}"}})
