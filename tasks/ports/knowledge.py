"""Other knowledge beside the repository: mounted sources and material; must not know how they are reached."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tasks.contract.knowledge import KnowledgeView
    from tasks.knowledge.found import Found
    from tasks.knowledge.material import MaterialRules
    from tasks.knowledge.spec import Injection


class KnowledgeSource(Protocol):
    """One source of external knowledge (CONTRACT §6). Never raises: every fault is a status."""

    def search(self, query: str, *, timeout_s: float | None = None) -> Found:
        """Hits for the query, best first. ``timeout_s`` shortens the source's own time; the shorter one counts."""


@dataclass(frozen=True)
class MountedSource:
    """A source at a node: its id, and where and how its hits stand in the prompt."""

    id: str
    injection: Injection
    source: KnowledgeSource


@dataclass(frozen=True)
class KnowledgeNode:
    """What one ``AI_TASK`` node mounts, in ``knowledge_ref`` order; ``template``: the operator's words around it."""

    sources: tuple[MountedSource, ...] = ()
    template: str = ""


@dataclass(frozen=True)
class KnowledgeMounts:
    """All mounts by pipeline (the job's skill) and node; nothing is mounted by default.

    ``count`` counts tokens. ``noted`` is told what came of the mounts of one question, for the metrics.
    """

    nodes: Mapping[str, Mapping[str, KnowledgeNode]] = field(default_factory=dict)
    count: Callable[[str], int] = len
    noted: Callable[[KnowledgeView], None] = lambda _view: None


class MaterialSource(Protocol):
    """Where material cards are found: WeKnora, or the local source files. Never raises: a fault is a status."""

    @property
    def name(self) -> str:
        """``weknora | local_md``: for reports and ``degraded[]``."""

    def find(self, kb_id: str, question: str, *, timeout: float) -> Found:
        """Cards for a question within ``timeout`` seconds; the content of a hit is the card's own text, once."""


@dataclass(frozen=True)
class MaterialDesk:
    """What material retrieval works with; a source that is not set up here is ``None``.

    ``noted`` is told each search, by source and row of the degrade matrix, for the metrics.
    """

    rules: MaterialRules
    weknora: MaterialSource | None = None
    local: MaterialSource | None = None
    noted: Callable[[str, str], None] = lambda _source, _row: None
