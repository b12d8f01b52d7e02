"""WeKnora over MCP, the tool ``hybrid_search`` only; never ``chat``, which would sum a card up.

Over MCP every failure looks alike (facts/knowledge-weknora.md A2), so a failed search is followed by one probe.
"""

from __future__ import annotations

import json
from functools import partial
from typing import Any, Protocol

from tasks.knowledge.found import Found, Status
from tasks.ports import Clock
from worker.adapters.weknora.results import Answers, ToolFault, WeknoraFault, found_in, is_success

SEARCH, PROBE, PROBE_SHARED = "hybrid_search", "list_knowledge_bases", "list_shared_knowledge_bases"


class ToolCalls(Protocol):
    """A session with an MCP server: one call of a tool gives the text of its answer."""

    def call(self, tool: str, arguments: dict[str, Any], *, timeout: float) -> str:
        """Raises :class:`ToolFault` when the tool itself says that it failed, else :class:`WeknoraFault`."""


class WeknoraMcp:
    """Searches by tool calls; the base is given by its name, the server resolves it."""

    name = "weknora"

    def __init__(
        self,
        session: ToolCalls,
        clock: Clock,
        *,
        match_count: int = 3,
        vector_threshold: float = 0.5,
        answers: Answers = "first",
        passages: bool = False,
    ) -> None:
        self._session = session
        self._clock = clock
        self._match_count = match_count
        self._threshold = vector_threshold
        self._read = partial(found_in, answers=answers, passages=passages)

    def find(self, kb_id: str, question: str, *, timeout: float) -> Found:
        """Cards within ``timeout`` seconds, the probe after a failure included."""
        until = self._clock.monotonic() + timeout
        arguments = {
            "kb_id": kb_id,
            "query": question,
            "match_count": self._match_count,
            "vector_threshold": self._threshold,
        }
        try:
            return self._read(_object(self._session.call(SEARCH, arguments, timeout=timeout)))
        except ToolFault:
            pass
        except WeknoraFault as fault:
            return Found(fault.status, detail=fault.detail)
        return self._probed(kb_id, max(0.05, until - self._clock.monotonic()))

    def _probed(self, kb_id: str, timeout: float) -> Found:
        """Why the search failed: the server behind is down, it has no such base, or it cannot search."""
        until = self._clock.monotonic() + timeout
        try:
            is_there = self._lists(PROBE, kb_id, timeout) or self._shares(kb_id, until)
        except ToolFault:
            return Found(Status.UNAVAILABLE, detail=f"{SEARCH} failed and so did {PROBE}")
        except WeknoraFault as fault:
            return Found(fault.status, detail=fault.detail)
        if not is_there:
            return Found(Status.KB_NOT_FOUND, detail=f"no knowledge base {kb_id!r}")
        return Found(Status.UNAVAILABLE, detail=f"{SEARCH} failed although the base is there")

    def _lists(self, tool: str, kb_id: str, timeout: float) -> bool:
        return kb_id.casefold() in _names(_object(self._session.call(tool, {}, timeout=timeout)))

    def _shares(self, kb_id: str, until: float) -> bool:
        """Whether others share such a base with us: a search finds those too. Older servers have no tool to ask."""
        try:
            return self._lists(PROBE_SHARED, kb_id, max(0.05, until - self._clock.monotonic()))
        except WeknoraFault as fault:
            if fault.status is Status.TIMEOUT:
                raise
            return False


def _object(text: str) -> dict[str, Any]:
    """Servers before 1.1 told errors as a successful text: what is no JSON object is a failure."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        raise ToolFault(Status.BAD_RESPONSE, "the tool's answer is no JSON") from None
    if not isinstance(document, dict) or not is_success(document):
        raise ToolFault(Status.BAD_RESPONSE, "the tool's answer is an error")
    return document


def _names(document: dict[str, Any]) -> set[str]:
    data = document.get("data")
    rows = data if isinstance(data, list) else []
    flat = [row.get("knowledge_base", row) for row in rows if isinstance(row, dict)]
    return {str(row.get(key)).casefold() for row in flat if isinstance(row, dict) for key in ("id", "name")}
