"""Asking the mounted knowledge sources and placing their hits for each node (CONTRACT §6); must not judge a hit.

A source that fails is a status in the view, never an error: the job goes on without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

from tasks.contract.knowledge import KnowledgeView, NodeKnowledge, SourceAttempt, SourceUse
from tasks.contract.shape import JsonObject
from tasks.knowledge.found import Found
from tasks.knowledge.injection import Count, Injected, inject
from tasks.ports import KnowledgeMounts, KnowledgeNode, MountedSource
from tasks.prompts.foreign import disarm

MAX_AT_ONCE = 4
SHARE_OF_TIME = 0.5
"""At most this part of the time a job has left may go into waiting for knowledge: the model needs the rest."""


def gather(skill: str, query: str, mounts: KnowledgeMounts, *, seconds_left: float) -> KnowledgeView:
    """Ask every source mounted at a node of the skill with ``query``, each once; place the hits for each node."""
    nodes = mounts.nodes.get(skill, {})
    if not query.strip() or not any(node.sources for node in nodes.values()):
        return KnowledgeView()
    sources = {mounted.id: mounted for node in nodes.values() for mounted in node.sources}
    found = ask_all(sources, query, timeout_s=max(seconds_left * SHARE_OF_TIME, 0.0))
    mounting = {name: node for name, node in nodes.items() if node.sources}
    view = KnowledgeView(nodes={name: placed(node, found, mounts.count) for name, node in mounting.items()})
    mounts.noted(view)
    return view


def ask_all(sources: Mapping[str, MountedSource], query: str, *, timeout_s: float) -> dict[str, Found]:
    """What each source says, several asked at a time."""
    with ThreadPoolExecutor(min(MAX_AT_ONCE, len(sources)), thread_name_prefix="kbw-knowledge") as threads:
        asked = {
            name: threads.submit(mounted.source.search, query, timeout_s=timeout_s) for name, mounted in sources.items()
        }
        return {name: future.result() for name, future in asked.items()}


def placed(node: KnowledgeNode, found: Mapping[str, Found], count: Count) -> NodeKnowledge:
    """The texts of the node's variables. Sources that share one are joined in ``knowledge_ref`` order."""
    uses: list[SourceUse] = []
    texts: dict[str, list[str]] = {}
    for mounted in node.sources:
        answer = found[mounted.id]
        injected = inject(answer.hits, mounted.injection, mounted.id, count=count, clean=_clean)
        uses.append(_use(mounted, answer, injected))
        texts.setdefault(mounted.injection.target_variable, []).append(injected.text)
    variables = {name: "\n\n".join(part for part in parts if part) for name, parts in texts.items()}
    return NodeKnowledge(sources=tuple(uses), variables=variables, template=node.template)


def degradations(knowledge: KnowledgeView) -> Iterable[JsonObject]:
    """The entries for the result's ``degraded[]``: which stage had to do without which source, or with another."""
    for stage, node in knowledge.nodes.items():
        for use in node.sources:
            if use.degraded:
                yield {"stage": stage, "source": use.id, "status": use.degraded}


def _clean(text: str) -> str:
    return disarm(text, "")


def _use(mounted: MountedSource, found: Found, injected: Injected) -> SourceUse:
    attempts = tuple(SourceAttempt(source=a.source, status=a.status, ms=a.ms, detail=a.detail) for a in found.attempts)
    return SourceUse(
        id=mounted.id,
        variable=mounted.injection.target_variable,
        status=found.status,
        hits=len(found.hits),
        used=injected.used,
        cut=injected.cut,
        tokens=injected.tokens,
        ms=found.ms,
        answered_by=found.answered_by,
        detail=found.detail,
        attempts=attempts,
    )
