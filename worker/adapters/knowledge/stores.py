"""Which store and which encoder a ``VDB_DIRECT`` source means; must not ask them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from tasks.knowledge.spec import Engine, KnowledgeSpec
from tasks.ports import Clock, KnowledgeSource
from worker.adapters.knowledge.calling import Environment
from worker.adapters.knowledge.embeddings import OFFLINE, Embeddings, OfflineEmbeddings, ServedEmbeddings
from worker.adapters.knowledge.pgvector import PgvectorStore
from worker.adapters.knowledge.qdrant import QdrantFolder, QdrantServer
from worker.adapters.knowledge.shelf import AbsentSource
from worker.adapters.knowledge.sqlite_vec import SqliteVecStore
from worker.adapters.knowledge.vectors import VectorSource, VectorStore
from worker.outbound import Outbound

_SQLITE_ENDINGS = (".db", ".sqlite", ".sqlite3")


@dataclass(frozen=True)
class EmbeddingService:
    """``KBW_EMBEDDING_BASE_URL`` and its key; ``""`` when none is set. ``outbound`` may call that very host."""

    base_url: str
    api_key: str = field(repr=False)
    outbound: Outbound


@dataclass(frozen=True)
class VectorSources:
    """Builds ``VDB_DIRECT`` sources."""

    outbound: Outbound
    environment: Environment
    clock: Clock
    service: EmbeddingService
    offline: Embeddings = field(default_factory=OfflineEmbeddings)

    def __call__(self, spec: KnowledgeSpec) -> KnowledgeSource:
        """The source; one that cannot be built says why when it is asked."""
        model = spec.vdb.embedding_model or ("" if self.service.base_url else OFFLINE[0])
        if model in OFFLINE:
            embeddings = self.offline
        elif not self.service.base_url:
            return AbsentSource(spec.id, f"KBW_EMBEDDING_BASE_URL is not set: where is {model} served?")
        elif not model:
            return AbsentSource(spec.id, "vdb_params.embedding_model is missing: name the model that made the index")
        else:
            embeddings = ServedEmbeddings(self.service.base_url, self.service.api_key, model, self.service.outbound)
        return VectorSource(spec, self._store(spec), embeddings, self.environment, self.clock)

    def _store(self, spec: KnowledgeSpec) -> VectorStore:
        scheme = urlsplit(spec.config.endpoint).scheme
        build: Mapping[Engine, Callable[[], VectorStore]] = {
            "qdrant": lambda: QdrantFolder() if scheme == "file" else QdrantServer(self.outbound),
            "pgvector": lambda: PgvectorStore(self.outbound.allowed, self.clock.monotonic, self.outbound.resolve),
            "sqlite_vec": lambda: SqliteVecStore(self.clock.monotonic),
        }
        return build[spec.vdb.engine or engine_of(spec.config.endpoint)]()


def engine_of(endpoint: str) -> Engine:
    """The kind of store that an endpoint's form tells, when the file does not."""
    parts = urlsplit(endpoint)
    if parts.scheme in ("postgresql", "postgres"):
        return "pgvector"
    if parts.scheme == "sqlite" or (parts.scheme == "file" and parts.path.lower().endswith(_SQLITE_ENDINGS)):
        return "sqlite_vec"
    return "qdrant"
