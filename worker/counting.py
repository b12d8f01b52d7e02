"""Counts what goes through the ports, for the metrics; must not change it nor fail for it."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tasks.contract.knowledge import KnowledgeView, SourceUse
from tasks.contract.outcome import Receipt
from tasks.errors import JobError, StoreUnavailableError
from tasks.knowledge.found import Found, Status
from tasks.ports import (
    Change,
    JobCensus,
    KbWriter,
    KnowledgeMounts,
    KnowledgeSource,
    MaterialDesk,
    ModelCall,
    ModelDriver,
    RawReply,
    RepoRef,
)

log = logging.getLogger("kbw.job")


def tally(census: JobCensus, counts: Mapping[str, int]) -> None:
    """Add to the fleet's counters. A count that is lost must not cost a reply that was paid for."""
    try:
        census.tally(counts)
    except StoreUnavailableError as error:
        log.debug("uncounted", extra={"kbw": {"reason": str(error)}})


@dataclass(frozen=True)
class CountedModel:
    """A model driver whose calls and tokens are counted: ``model_calls/<ok|CODE>/<endpoint>``, ``tokens/<kind>/…``."""

    driver: ModelDriver
    census: JobCensus

    @property
    def name(self) -> str:
        """The driver's."""
        return self.driver.name

    @property
    def endpoint(self) -> str:
        """The driver's."""
        return self.driver.endpoint

    def complete(self, call: ModelCall) -> RawReply:
        """The driver's reply."""
        try:
            reply = self.driver.complete(call)
        except JobError as error:
            tally(self.census, {f"model_calls/{error.code}/{self.endpoint}": 1})
            raise
        counts = {
            f"model_calls/ok/{self.endpoint}": 1,
            f"tokens/prompt/{self.endpoint}": reply.prompt_tokens,
            f"tokens/completion/{self.endpoint}": reply.completion_tokens,
        }
        tally(self.census, counts)
        return reply


@dataclass(frozen=True)
class CountedWriter:
    """A repository writer whose refused pages are counted: ``pages_refused``.

    What landed is told by the writer itself (:func:`count_landed`): a receipt may be that of an earlier attempt.
    """

    writer: KbWriter
    census: JobCensus

    def commit(self, repo: RepoRef, changes: Sequence[Change]) -> list[Receipt]:
        """The writer's receipts."""
        receipts = self.writer.commit(repo, changes)
        tally(self.census, {"pages_refused": sum(not receipt.commit_id for receipt in receipts)})
        return receipts


def count_landed(census: JobCensus, pages: int) -> None:
    """One commit with so many pages came into a repository: ``commits``, ``pages``."""
    tally(census, {"commits": 1, "pages": pages})


@dataclass(frozen=True)
class CountedSource:
    """A knowledge source whose searches are counted by status, each source of a fallback chain under its own name."""

    id: str
    source: KnowledgeSource
    census: JobCensus

    def search(self, query: str, *, timeout_s: float | None = None) -> Found:
        """The source's answer."""
        found = self.source.search(query, timeout_s=timeout_s)
        asked = [(attempt.source, attempt.status, attempt.ms) for attempt in found.attempts]
        counts: dict[str, int] = {}
        for name, status, ms in asked or [(self.id, found.status, found.ms)]:
            counts[f"knowledge/{status}/{name}"] = 1
            counts[f"knowledge_ms/{status}/{name}"] = ms
        tally(self.census, counts)
        return found


def counted_mounts(mounts: KnowledgeMounts, census: JobCensus) -> KnowledgeMounts:
    """The same mounts, their sources and what came of each mount counted."""
    nodes = {
        skill: {
            name: replace(
                node,
                sources=tuple(
                    replace(mounted, source=CountedSource(mounted.id, mounted.source, census))
                    for mounted in node.sources
                ),
            )
            for name, node in its_nodes.items()
        }
        for skill, its_nodes in mounts.nodes.items()
    }
    return replace(mounts, nodes=nodes, noted=lambda view: tally(census, mount_counts(view)))


def mount_counts(view: KnowledgeView) -> Counter[str]:
    """``mounts/<outcome>/<node>/<source>`` for each mount; ``degraded/<status>/…`` beside it where another stood in."""
    counts: Counter[str] = Counter()
    for node, mounted in view.nodes.items():
        for use in mounted.sources:
            counts[f"mounts/{_outcome(use)}/{node}/{use.id}"] += 1
            if use.degraded:
                counts[f"degraded/{use.degraded}/{node}/{use.id}"] += 1
    return counts


def _outcome(use: SourceUse) -> str:
    """``cut`` is a hit of which some did not fit; ``none``: nobody answered, fallbacks included."""
    if use.hits:
        return "cut" if use.cut else "hit"
    return "zero" if use.status == Status.ZERO_HIT else "none"


def counted_material(desk: MaterialDesk, census: JobCensus) -> MaterialDesk:
    """The same desk, its searches counted: ``material/<row of the degrade matrix>/<source>``."""
    return replace(desk, noted=lambda source, row: tally(census, {f"material/{row}/{source}": 1}))
