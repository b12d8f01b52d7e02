"""WeKnora as a source of ``knowledge.yaml`` (``weknora_rest``, ``weknora_mcp``); must not know its protocol.

The address, the key and the base come from the source's own entry, so several servers can be mounted side by side.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from tasks.knowledge.found import Found, Hit, Status
from tasks.knowledge.spec import KnowledgeSpec
from tasks.ports import Clock, MaterialSource
from worker.adapters.knowledge.calling import Environment, searched, seconds, without_secrets
from worker.adapters.knowledge.fault import SearchFault
from worker.adapters.weknora.http import WeknoraWire
from worker.adapters.weknora.mcp import WeknoraMcp
from worker.adapters.weknora.mcp_session import McpServer, McpSession
from worker.adapters.weknora.rest import WeknoraRest
from worker.outbound import Outbound

DEFAULT_COUNT, DEFAULT_THRESHOLD = 3, 0.5
_KEY_HEADERS = ("x-api-key", "x-mcp-auth-token", "authorization")

Connect = Callable[[KnowledgeSpec, str, str, Clock, Outbound], MaterialSource]


@dataclass
class WeknoraSource:
    """``KnowledgeSource`` over one WeKnora server; connects when first asked, anew when its key or address changed."""

    spec: KnowledgeSpec
    connect: Connect
    environment: Environment
    outbound: Outbound
    clock: Clock
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)
    _known: tuple[tuple[str, str], MaterialSource] | None = field(default=None, init=False, repr=False)

    def search(self, query: str, *, timeout_s: float | None = None) -> Found:
        """Never raises; see :class:`tasks.ports.KnowledgeSource`."""
        return searched(lambda: self._search(query, timeout_s), self.spec.id, self.clock)

    def _search(self, query: str, timeout_s: float | None) -> list[Hit]:
        config = self.spec.config
        endpoint, used = self.environment.fill(config.endpoint)
        headers, secrets = self.environment.fill_headers(config.headers)
        timeout = seconds(config.timeout, timeout_s)
        if config.adapter == "weknora_mcp":  # the SDK's client would call any address
            self.outbound.check(endpoint, self.clock.monotonic() + timeout)
        named = {name.lower(): value for name, value in headers.items()}
        key = next((named[name] for name in _KEY_HEADERS if name in named), "")
        source = self._connected(endpoint.rstrip("/"), key.removeprefix("Bearer ").strip())
        base = str(config.request.get("kb_id", ""))
        found = source.find(base, query, timeout=timeout)
        if not found.status.answered:
            raise SearchFault(found.status, found.detail)
        return without_secrets(list(found.hits), used + secrets) if found.status == Status.HIT else []

    def _connected(self, endpoint: str, key: str) -> MaterialSource:
        with self._lock:
            if self._known is None or self._known[0] != (endpoint, key):
                source = self.connect(self.spec, endpoint, key, self.clock, self.outbound)
                self._known = ((endpoint, key), source)
            return self._known[1]


def over_rest(spec: KnowledgeSpec, endpoint: str, key: str, clock: Clock, outbound: Outbound) -> MaterialSource:
    """The REST API at ``…/api/v1``."""
    count, threshold = _numbers(spec)
    wire = WeknoraWire(endpoint, key, outbound)
    return WeknoraRest(wire, clock, match_count=count, vector_threshold=threshold, passages=True)


def over_mcp(spec: KnowledgeSpec, endpoint: str, key: str, clock: Clock, _outbound: Outbound) -> MaterialSource:
    """The MCP server at ``…/mcp``; the SDK brings a client of its own."""
    count, threshold = _numbers(spec)
    session = McpSession(McpServer(url=endpoint, token=key))
    return WeknoraMcp(session, clock, match_count=count, vector_threshold=threshold, passages=True)


def _numbers(spec: KnowledgeSpec) -> tuple[int, float]:
    count = spec.config.request.get("match_count", DEFAULT_COUNT)
    threshold = spec.config.request.get("vector_threshold", DEFAULT_THRESHOLD)
    return (
        count if isinstance(count, int) and count > 0 else DEFAULT_COUNT,
        float(threshold) if isinstance(threshold, int | float) else DEFAULT_THRESHOLD,
    )
