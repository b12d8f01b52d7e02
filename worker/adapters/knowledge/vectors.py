"""VDB_DIRECT: the question becomes a vector, a store is asked, hits count by cosine; must not know any one store.

``threshold`` means cosine similarity ≥ t whatever a store returns (CONTRACT §6): each store hands over its hits with
their cosine, and the rule is applied here once more, since a server may ignore it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tasks.knowledge.found import Found, Hit, Status
from tasks.knowledge.spec import KnowledgeSpec, VdbParams
from tasks.ports import Clock
from worker.adapters.knowledge.calling import Environment, searched, seconds, with_tries, without_secrets
from worker.adapters.knowledge.embeddings import Embeddings
from worker.adapters.knowledge.fault import SearchFault

MAX_QUERY_CHARS = 8_000
MORE_CANDIDATES, LEAST_CANDIDATES = 4, 50
ROUNDING = 1e-6
"""Stores keep 32-bit floats: a similarity that is exactly the threshold must not be lost to rounding."""


@dataclass(frozen=True)
class Place:
    """Where a store is, with secrets filled in. ``deadline``: monotonic seconds."""

    endpoint: str
    headers: Mapping[str, str]
    deadline: float


class VectorStore(Protocol):
    """One kind of store. Raises ``SearchFault``; a wrong dimension is told before anything is compared."""

    def search(self, vector: Sequence[float], params: VdbParams, place: Place) -> list[Hit]:
        """At least the ``top_k`` nearest records that pass ``params.filter``, each with its cosine similarity."""


@dataclass(frozen=True)
class VectorSource:
    """``KnowledgeSource`` over a vector store."""

    spec: KnowledgeSpec
    store: VectorStore
    embeddings: Embeddings
    environment: Environment
    clock: Clock

    def search(self, query: str, *, timeout_s: float | None = None) -> Found:
        """Never raises; see :class:`tasks.ports.KnowledgeSource`."""
        return searched(lambda: self._search(query[:MAX_QUERY_CHARS], timeout_s), self.spec.id, self.clock)

    def _search(self, query: str, timeout_s: float | None) -> list[Hit]:
        config, vdb = self.spec.config, self.spec.vdb
        deadline = self.clock.monotonic() + seconds(config.timeout, timeout_s)
        endpoint, in_url = self.environment.fill(config.endpoint)
        headers, in_headers = self.environment.fill_headers(config.headers)
        place = Place(endpoint, headers, deadline)

        def tried(work: Callable[[], list[float]]) -> list[float]:
            return with_tries(work, retries=config.retry, deadline=deadline, clock=self.clock)

        vector = tried(lambda: self.embeddings.vector(query, deadline))
        hits = with_tries(
            lambda: self.store.search(vector, vdb, place), retries=config.retry, deadline=deadline, clock=self.clock
        )
        near = [hit for hit in hits if hit.score is not None and hit.score >= vdb.threshold - ROUNDING]
        near.sort(key=lambda hit: -(hit.score or 0.0))
        return without_secrets(near[: vdb.top_k], in_url + in_headers)


def cosine(one: Sequence[float], other: Sequence[float]) -> float:
    """Cosine similarity of two vectors of one length; 0 when one of them is zero."""
    dot = math.fsum(a * b for a, b in zip(one, other, strict=True))
    lengths = math.sqrt(math.fsum(a * a for a in one)) * math.sqrt(math.fsum(b * b for b in other))
    return dot / lengths if lengths else 0.0


def check_dimension(params: VdbParams, index: int, vector: Sequence[float]) -> None:
    """Raises ``MISCONFIGURED`` when the index was made by another model."""
    if index != len(vector):
        raise SearchFault(
            Status.MISCONFIGURED,
            f"index {params.index_name} has {index} dimensions, {params.embedding_model or 'the model'} makes "
            f"{len(vector)}: set vdb_params.embedding_model to the model that made the index",
        )


def candidates(params: VdbParams, metric: str) -> int:
    """How many records a store is asked for: another metric than the cosine orders otherwise, so more than wanted."""
    return params.top_k if metric == "cosine" else max(params.top_k * MORE_CANDIDATES, LEAST_CANDIDATES)


def check_metric(params: VdbParams, index: str) -> None:
    """Raises ``MISCONFIGURED`` when the file says another metric than the index."""
    if params.metric is not None and index and params.metric != index:
        raise SearchFault(
            Status.MISCONFIGURED, f"index {params.index_name} was built for {index}: write vdb_params.metric: {index}"
        )


def text_of(record: Mapping[str, object], name: str | None) -> str:
    """A field of a record as text, ``""`` without one."""
    value = record.get(name) if name else None
    return value if isinstance(value, str) else "" if value is None else str(value)


def content_of(record: Mapping[str, object], params: VdbParams) -> str:
    """The record's text. Raises ``MISCONFIGURED`` when records have no such field at all."""
    if params.columns.content not in record:
        raise SearchFault(
            Status.MISCONFIGURED,
            f"records of {params.index_name} have no {params.columns.content}: name their text in vdb_params.columns",
        )
    return text_of(record, params.columns.content)


def not_found(params: VdbParams) -> SearchFault:
    """The index is not there."""
    return SearchFault(Status.KB_NOT_FOUND, f"there is no index {params.index_name}: check vdb_params.index_name")


def missing_extra(extra: str) -> SearchFault:
    """The client library is not installed."""
    return SearchFault(Status.MISCONFIGURED, f"this store needs an extra: pip install kb-query-worker[{extra}]")
