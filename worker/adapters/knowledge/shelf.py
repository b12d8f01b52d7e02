"""Specs become sources, each when it is first asked: so that a source nobody asks costs nothing and breaks nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tasks.knowledge.found import Found, Status
from tasks.knowledge.spec import KnowledgeSpec
from tasks.ports import Clock, KnowledgeSource
from worker.adapters.knowledge.calling import Environment
from worker.adapters.knowledge.chain import ChainedSource, RememberingSource
from worker.adapters.knowledge.semantic import SemanticSource
from worker.outbound import Outbound

Build = Callable[[KnowledgeSpec], KnowledgeSource]


@dataclass(frozen=True)
class AbsentSource:
    """Stands for a source that cannot be built here; says why whenever it is asked."""

    id: str
    detail: str

    def search(self, query: str, *, timeout_s: float | None = None) -> Found:  # noqa: ARG002  # the port's signature
        """``MISCONFIGURED``, always."""
        return Found(Status.MISCONFIGURED, detail=self.detail, answered_by=self.id)


@dataclass
class SourceShelf:
    """All sources of a knowledge file by id.

    ``others`` builds what lives in other packages, by ``adapter``; ``vectors`` builds ``VDB_DIRECT`` sources.
    """

    specs: Sequence[KnowledgeSpec]
    outbound: Outbound
    environment: Environment
    clock: Clock
    vectors: Build
    others: Mapping[str, Build] = field(default_factory=dict)
    _built: dict[str, KnowledgeSource] = field(default_factory=dict, init=False, repr=False)
    _lock: threading.RLock = field(default_factory=threading.RLock, init=False, repr=False)

    def source(self, source_id: str) -> KnowledgeSource:
        """The source with its memory and fallbacks. An id that no spec has is a source that says so."""
        spec = self.spec(source_id)
        if spec is None:
            return AbsentSource(source_id, f"no source {source_id} in knowledge.yaml")
        return ChainedSource(spec, self._plain(source_id), self._plain, self.clock)

    def spec(self, source_id: str) -> KnowledgeSpec | None:
        """The spec of that id."""
        return next((spec for spec in self.specs if spec.id == source_id), None)

    def _plain(self, source_id: str) -> KnowledgeSource:
        """The source itself, without its fallbacks."""
        with self._lock:
            if source_id not in self._built:
                self._built[source_id] = self._build(source_id)
            return self._built[source_id]

    def _build(self, source_id: str) -> KnowledgeSource:
        spec = self.spec(source_id)
        if spec is None:
            return AbsentSource(source_id, f"no source {source_id} in knowledge.yaml")
        source = self._bare(spec)
        return RememberingSource(source, spec.config.cache_ttl, self.clock) if spec.config.cache_ttl else source

    def _bare(self, spec: KnowledgeSpec) -> KnowledgeSource:
        if spec.provider_type == "VDB_DIRECT":
            return self.vectors(spec)
        if spec.config.adapter in ("generic", "dify", "ragflow"):
            return SemanticSource(spec, self.outbound, self.environment, self.clock)
        if spec.config.adapter in self.others:
            return self.others[spec.config.adapter](spec)
        return AbsentSource(spec.id, f"adapter {spec.config.adapter} is not installed here")
