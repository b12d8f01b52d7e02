"""SEMANTIC_API: a service that takes a question and returns text; must not know any one service's dialect."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode, urlsplit

from tasks.knowledge.found import Found, Hit
from tasks.knowledge.spec import KnowledgeSpec
from tasks.ports import Clock
from worker.adapters.knowledge.calling import Environment, searched, seconds, with_tries, without_secrets
from worker.adapters.knowledge.dialects import DIALECTS, Dialect, decode, dify_fault
from worker.adapters.knowledge.fault import SearchFault, fault_of_status
from worker.outbound import Outbound, Reply

MAX_QUERY_CHARS = 8_000


@dataclass(frozen=True)
class SemanticSource:
    """``KnowledgeSource`` over HTTP. One deadline for name look-up, all tries and reading."""

    spec: KnowledgeSpec
    outbound: Outbound
    environment: Environment
    clock: Clock

    def search(self, query: str, *, timeout_s: float | None = None) -> Found:
        """Never raises; see :class:`tasks.ports.KnowledgeSource`."""
        return searched(lambda: self._search(query[:MAX_QUERY_CHARS], timeout_s), self.spec.id, self.clock)

    def _search(self, query: str, timeout_s: float | None) -> list[Hit]:
        config = self.spec.config
        dialect = DIALECTS[config.adapter]
        deadline = self.clock.monotonic() + seconds(config.timeout, timeout_s)
        endpoint, in_url = self.environment.fill(config.endpoint)
        headers, in_headers = self.environment.fill_headers(config.headers)
        url, content = self._request(dialect, endpoint, query)
        if content:
            headers = {"Content-Type": "application/json", **headers}
        method = "POST" if content else "GET"

        def attempt() -> Reply:
            reply = self.outbound.send(method, url, headers, content, deadline)
            fault = fault_of_status(reply.status, urlsplit(url).hostname or "", reply.retry_after)
            if fault:
                raise _told(reply, config.adapter) or fault
            return reply

        reply = with_tries(attempt, retries=config.retry, deadline=deadline, clock=self.clock)
        hits = dialect.read(config, decode(reply.body, reply.content_type))
        return without_secrets(hits, in_url + in_headers)

    def _request(self, dialect: Dialect, endpoint: str, query: str) -> tuple[str, bytes]:
        """URL and body; with ``GET`` the body's fields are the URL's parameters."""
        url = _completed(endpoint, dialect.path) if dialect.path else endpoint
        body = dialect.body(self.spec.config, query)
        if self.spec.config.method == "GET" and not dialect.path:
            mark = "&" if "?" in url else "?"
            return f"{url}{mark}{urlencode(_flat(body))}", b""
        return url, json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")


def _completed(endpoint: str, path: str) -> str:
    """The endpoint with the dialect's path, of which it may hold all or the beginning (``…/api/v1``)."""
    url = endpoint.rstrip("/")
    beginning, _, last = path.rpartition("/")
    if url.endswith(path):
        return url
    return f"{url}/{last}" if beginning and url.endswith(beginning) else url + path


def _flat(body: Mapping[str, object]) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for key, value in body.items():
        items = value if isinstance(value, list) else [value]
        pairs += [(key, item if isinstance(item, str) else json.dumps(item, ensure_ascii=False)) for item in items]
    return pairs


def _told(reply: Reply, adapter: str) -> SearchFault | None:
    """Dify-like services put the reason into the body of an HTTP error; their codes are better than the status."""
    if adapter != "dify":
        return None
    try:
        told = json.loads(reply.body[:10_000])
    except (ValueError, RecursionError):
        return None
    known = isinstance(told, Mapping) and str(told.get("error_code")) in ("1001", "1002", "2001")
    return dify_fault(told["error_code"]) if known else None
