"""Remembers for a minute that a base does not exist, so that a task does not ask for it node by node."""

from __future__ import annotations

from tasks.knowledge.found import Found, Status
from tasks.ports import Clock, MaterialSource

REMEMBERED_S = 60.0


class RememberedAbsence:
    """A source whose ``KB_NOT_FOUND`` is believed for 60 s (CONTRACT §7)."""

    def __init__(self, source: MaterialSource, clock: Clock) -> None:
        self._source = source
        self._clock = clock
        self._absent: dict[str, float] = {}

    @property
    def name(self) -> str:
        """The source's own."""
        return self._source.name

    def find(self, kb_id: str, question: str, *, timeout: float) -> Found:
        """As the source says, unless the base was missing less than a minute ago."""
        now = self._clock.monotonic()
        if self._absent.get(kb_id, 0.0) > now:
            return Found(Status.KB_NOT_FOUND, detail=f"no knowledge base {kb_id!r} (remembered)")
        found = self._source.find(kb_id, question, timeout=timeout)
        if found.status is Status.KB_NOT_FOUND:
            self._absent[kb_id] = self._clock.monotonic() + REMEMBERED_S
        else:
            self._absent.pop(kb_id, None)
        return found
