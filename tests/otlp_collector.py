"""A small OpenTelemetry collector for tests: OTLP over HTTP on loopback, keeps the spans that it is sent."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class SeenSpan:
    """A span as it was sent; ids in hex, times in seconds."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    began: float
    ended: float
    failed: bool
    attributes: dict[str, Any]
    resource: dict[str, Any]


@dataclass
class OtlpCollector:
    """``status``: what it answers. Requests wait until ``open`` is set."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    open: threading.Event = field(default_factory=threading.Event)
    requests: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    url: str = ""

    def spans(self) -> list[SeenSpan]:
        """All that came, in the order of their beginning."""
        found = [span for path, _, body in self.requests if path == "/v1/traces" for span in _spans_of(body)]
        return sorted(found, key=lambda span: span.began)


@contextmanager
def collecting(**facts: Any) -> Iterator[OtlpCollector]:
    """A collector that listens."""
    collector = OtlpCollector(**facts)
    collector.open.set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            collector.requests.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
            collector.open.wait(60)
            self.send_response(collector.status)
            for name, value in collector.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    collector.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield collector
    finally:
        collector.open.set()
        server.shutdown()
        server.server_close()
        thread.join()


def _spans_of(body: bytes) -> Iterator[SeenSpan]:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    for sent in ExportTraceServiceRequest.FromString(body).resource_spans:
        resource = _facts(sent.resource.attributes)
        for scope in sent.scope_spans:
            for span in scope.spans:
                ids = (span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex())
                times = (span.start_time_unix_nano / 1e9, span.end_time_unix_nano / 1e9)
                yield SeenSpan(span.name, *ids, *times, span.status.code == 2, _facts(span.attributes), resource)


def _facts(attributes: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}
