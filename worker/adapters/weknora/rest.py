"""WeKnora over REST: bases by name, search, FAQ entries for the production side; must not retry a write."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from tasks.knowledge.found import Found, Status
from tasks.ports import Clock
from worker.adapters.weknora.http import MAX_EXPORT_BYTES, WeknoraWire
from worker.adapters.weknora.results import Answers, WeknoraFault, body_of, found_in

ID_TTL_S = 300.0
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)


@dataclass(frozen=True)
class Base:
    """A knowledge base. ``kind``: ``faq | document``, ``""`` when it was named by its id."""

    id: str
    name: str
    kind: str = ""


class WeknoraRest:
    """One WeKnora server with one API key. Raises :class:`WeknoraFault`; :meth:`find` gives a status instead."""

    name = "weknora"

    def __init__(
        self,
        wire: WeknoraWire,
        clock: Clock,
        *,
        match_count: int = 3,
        vector_threshold: float = 0.5,
        answers: Answers = "first",
        passages: bool = False,
    ) -> None:
        self._exchange = wire.exchange
        self._clock = clock
        self._match_count = match_count
        self._threshold = vector_threshold
        self._read = partial(found_in, answers=answers, passages=passages)
        self._ids: dict[str, tuple[float, Base]] = {}

    # ---------------------------------------------------------------- retrieval

    def find(self, kb_id: str, question: str, *, timeout: float) -> Found:
        """Cards of the base ``kb_id`` (name or id) within ``timeout`` seconds, name look-up included."""
        until = self._clock.monotonic() + timeout
        try:
            try:
                return self._search(self.base(kb_id, timeout=self._left(until)), question, until)
            except WeknoraFault as fault:
                if fault.status is not Status.KB_NOT_FOUND or self._ids.pop(kb_id, None) is None:
                    raise
            # the name may have got another id since it was looked up
            return self._search(self.base(kb_id, timeout=self._left(until)), question, until)
        except WeknoraFault as fault:
            return Found(fault.status, detail=fault.detail)

    def _search(self, base: Base, question: str, until: float) -> Found:
        # keyword_threshold is never sent: a FAQ base is searched by vector only (seed 000 §1.1)
        request: dict[str, Any] = {
            "query_text": question,
            "vector_threshold": self._threshold,
            "match_count": self._match_count,
            "skip_context_enrichment": True,
        }
        if base.kind == "faq":
            request["disable_keywords_match"] = True
        path = f"/knowledge-bases/{quote(base.id, safe='')}/hybrid-search"
        answer = self._exchange("POST", path, timeout=self._left(until), json=request)
        if answer.status == 405 or (answer.status == 404 and b'"code"' not in answer.body):
            answer = self._exchange("GET", path, timeout=self._left(until), json=request)  # servers before 0.6.3
        return self._read(body_of(answer.status, answer.body, "hybrid-search"))

    def faq_search(self, base: Base, question: str, *, match_count: int, threshold: float, timeout: float) -> list[Any]:
        """FAQ entries with score, best first. All defaults are given: the server's own differ by path."""
        request = {"query_text": question, "vector_threshold": threshold, "match_count": match_count}
        data = self._data("POST", f"{self._faq(base)}/search", timeout=timeout, json=request)
        return data if isinstance(data, list) else []

    # ---------------------------------------------------------------- bases

    def base(self, name: str, *, timeout: float) -> Base:
        """The base of that name: own ones first, exact before case-insensitive; two of a name are an error."""
        if _UUID.fullmatch(name):
            return Base(name, name)
        known = self._ids.get(name)
        if known and known[0] > self._clock.monotonic():
            return known[1]
        until = self._clock.monotonic() + timeout
        base = _chosen(name, self._bases("/knowledge-bases", until)) or _chosen(name, self._shared(until))
        if base is None:
            raise WeknoraFault(Status.KB_NOT_FOUND, f"no knowledge base named {name!r}")
        self._ids[name] = (self._clock.monotonic() + ID_TTL_S, base)
        return base

    def _bases(self, path: str, until: float) -> list[Base]:
        data = self._data("GET", path, timeout=self._left(until))
        rows = data if isinstance(data, list) else []
        found = (row.get("knowledge_base", row) for row in rows if isinstance(row, dict))
        return [
            Base(str(row["id"]), str(row.get("name") or ""), str(row.get("type") or ""))
            for row in found
            if isinstance(row, dict) and row.get("id")
        ]

    def _shared(self, until: float) -> list[Base]:
        try:
            return self._bases("/shared-knowledge-bases", until)
        except WeknoraFault as fault:
            if fault.status in (Status.UNAUTHORIZED, Status.KB_NOT_FOUND, Status.BAD_RESPONSE):
                return []  # a scoped key may not list them; older servers do not have them
            raise

    # ---------------------------------------------------------------- FAQ entries

    def export(self, base: Base, *, timeout: float) -> list[Any]:
        """All FAQ entries, in the form that an import takes."""
        path = f"{self._faq(base)}/entries/export"
        answer = self._exchange("GET", path, timeout=timeout, params={"format": "json"}, max_bytes=MAX_EXPORT_BYTES)
        if 200 <= answer.status < 300 and answer.body.lstrip()[:1] == b"[":
            document: dict[str, Any] = body_of(answer.status, b'{"data":' + answer.body + b"}", "export")
        else:
            document = body_of(answer.status, answer.body, "export")
        data = document.get("data")
        if isinstance(data, dict):
            data = data.get("entries", data.get("data"))
        return data if isinstance(data, list) else []

    def start_import(
        self, base: Base, entries: Sequence[Any], *, mode: str, task_id: str, dry_run: bool, timeout: float
    ) -> str:
        """Begin an import; the id of its task. The server runs one a base at a time (code 1000 otherwise)."""
        request = {"entries": list(entries), "mode": mode, "task_id": task_id, "dry_run": dry_run}
        data = self._data("POST", f"{self._faq(base)}/entries", timeout=timeout, json=request)
        told = data.get("task_id") if isinstance(data, dict) else None
        return str(told or task_id)

    def progress(self, task_id: str, *, timeout: float) -> dict[str, Any] | None:
        """How an import stands; ``None`` when the server does not know it (any more): 404 in whatever form."""
        answer = self._exchange("GET", f"/faq/import/progress/{quote(task_id, safe='')}", timeout=timeout)
        if answer.status == HTTPStatus.NOT_FOUND:
            return None
        data = body_of(answer.status, answer.body, "import progress").get("data")
        return data if isinstance(data, dict) else None

    # ---------------------------------------------------------------- the wire

    @staticmethod
    def _faq(base: Base) -> str:
        return f"/knowledge-bases/{quote(base.id, safe='')}/faq"

    def _data(self, method: str, path: str, *, timeout: float, json: Any = None) -> Any:
        answer = self._exchange(method, path, timeout=timeout, json=json)
        return body_of(answer.status, answer.body, path.rsplit("/", 1)[-1]).get("data")

    def _left(self, until: float) -> float:
        return max(0.05, until - self._clock.monotonic())


def _chosen(name: str, bases: Sequence[Base]) -> Base | None:
    """Exact matches first. Raises MISCONFIGURED when the name does not tell which base is meant."""
    exact = [base for base in bases if base.name == name]
    found = exact or [base for base in bases if base.name.casefold() == name.casefold()]
    if len(found) > 1:
        raise WeknoraFault(Status.MISCONFIGURED, f"{len(found)} knowledge bases are named {name!r}; use an id")
    return found[0] if found else None
