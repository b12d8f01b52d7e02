"""``context.knowledge``: what was mounted at each model stage, what came of it, and the text that was injected."""

from __future__ import annotations

from pydantic import Field

from tasks.contract.shape import Shape


class SourceAttempt(Shape):
    """One source that was asked on the way, when a fallback took part. ``ms``: milliseconds."""

    source: str
    status: str
    ms: int = 0
    detail: str = ""


class SourceUse(Shape):
    """One mounted source. ``hits``: found; ``used``: in the text; ``cut``: some of it did not fit ``max_tokens``."""

    id: str
    variable: str
    status: str
    hits: int = 0
    used: int = 0
    cut: bool = False
    tokens: int = 0
    ms: int = 0
    answered_by: str = ""
    detail: str = ""
    attempts: tuple[SourceAttempt, ...] = ()

    @property
    def degraded(self) -> str:
        """The status to tell when the source itself did not do its work, or another had to; ``""``: nothing to tell."""
        if self.attempts:
            return self.attempts[0].status
        return "" if self.status in ("HIT", "ZERO_HIT") else self.status


class NodeKnowledge(Shape):
    """What one ``AI_TASK`` node gets: its sources, the text of each variable, the operator's words around them."""

    sources: tuple[SourceUse, ...] = ()
    variables: dict[str, str] = Field(default_factory=dict)
    template: str = ""


class KnowledgeView(Shape):
    """By node (``select``, ``answer``); empty when nothing is mounted."""

    nodes: dict[str, NodeKnowledge] = Field(default_factory=dict)

    def at(self, node: str) -> NodeKnowledge:
        """What the node gets."""
        return self.nodes.get(node, NodeKnowledge())
