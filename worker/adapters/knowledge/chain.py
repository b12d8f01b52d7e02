"""A source with a memory and with others to ask instead; must not ask two at once, nor the same one twice."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from tasks.knowledge.found import Attempt, Found, Status
from tasks.knowledge.spec import KnowledgeSpec
from tasks.ports import Clock, KnowledgeSource

MAX_REMEMBERED = 256
_SHORTEST_S = 0.05


@dataclass
class RememberingSource:
    """Answers of the last ``ttl_s`` seconds are given again. Faults are not remembered: they may be over."""

    source: KnowledgeSource
    ttl_s: float
    clock: Clock
    _known: OrderedDict[str, tuple[float, Found]] = field(default_factory=OrderedDict, init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def search(self, query: str, *, timeout_s: float | None = None) -> Found:
        """The remembered answer (``ms`` 0), else the source's."""
        now = self.clock.monotonic()
        with self._lock:
            until, known = self._known.get(query, (0.0, None))
        if known is not None and now < until:
            return replace(known, ms=0)
        found = self.source.search(query, timeout_s=timeout_s)
        if found.status.answered:
            with self._lock:
                self._known[query] = (now + self.ttl_s, found)
                self._known.move_to_end(query)
                while len(self._known) > MAX_REMEMBERED:
                    self._known.popitem(last=False)
        return found


@dataclass(frozen=True)
class ChainedSource:
    """A source and its fallbacks (``config.fallback``), asked in order while the policy says so.

    Each source has its own ``timeout``; ``timeout_s`` of the caller bounds them together. A fallback's own fallbacks
    are not asked: the list of the first source is the whole plan.
    """

    spec: KnowledgeSpec
    source: KnowledgeSource
    fallback: Callable[[str], KnowledgeSource]
    clock: Clock

    def search(self, query: str, *, timeout_s: float | None = None) -> Found:
        """The first answer the policy is content with; else the last one, with all that was tried in ``attempts``."""
        started = self.clock.monotonic()
        found = self.source.search(query, timeout_s=timeout_s)
        attempts = [Attempt(self.spec.id, found.status, found.ms, found.detail)]
        best = found
        for name in self.spec.config.fallback:
            if not self._goes_on(best.status):
                break
            left = None if timeout_s is None else timeout_s - (self.clock.monotonic() - started)
            if left is not None and left < _SHORTEST_S:
                break
            found = self.fallback(name).search(query, timeout_s=left)
            attempts.append(Attempt(name, found.status, found.ms, found.detail))
            if found.status.answered:
                best = replace(found, answered_by=name)
        ms = round((self.clock.monotonic() - started) * 1000)
        asked = tuple(attempts) if len(attempts) > 1 else ()
        return replace(best, ms=ms, attempts=asked, answered_by=best.answered_by or self.spec.id)

    def _goes_on(self, status: Status) -> bool:
        policy = self.spec.config
        if status == Status.HIT:
            return False
        return policy.on_zero == "fallback" if status == Status.ZERO_HIT else policy.on_error == "fallback"
