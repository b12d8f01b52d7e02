"""Material retrieval at our border (CONTRACT §7): nodes in, ``material_content`` out; must never hold a card's text."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationError, field_validator

from tasks.contract.payload import Payload
from tasks.contract.refusal import NotAllowedError, describe
from tasks.contract.result import Result
from tasks.contract.shape import JsonObject, OpenShape, Shape
from tasks.errors import Code, PermanentError

MAX_NODES = 100
MAX_SEARCHES = 20


def _text(value: Any) -> Any:
    """Slots are text; null is empty, an id may be a number."""
    if value is None:
        return ""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return " ".join(value.split()) if isinstance(value, str) else value


Slot = Annotated[str, BeforeValidator(_text), Field(max_length=500)]


class MaterialNode(OpenShape):
    """One node of the outline. A ``bridge`` that is there already makes a search needless."""

    id: Slot
    title: Slot = ""
    time_range: Slot = ""
    function: Slot = ""
    gap_object: Slot = ""
    break_method: Slot = ""
    anchor: Slot = ""
    method: Slot = ""
    subtype: Slot = ""
    bridge: Annotated[str, BeforeValidator(_text)] = ""
    account: Annotated[str, BeforeValidator(_text), Field(max_length=4_000)] = ""

    @field_validator("id")
    @classmethod
    def _named(cls, value: str) -> str:
        if not value:
            raise NotAllowedError("must not be blank", "不能为空")
        return value


class MaterialRequest(Shape):
    """What a ``material_search`` payload adds. Blank ``kb_id`` and ``max_searches`` 0: as configured."""

    kb_id: Slot = ""
    max_searches: Annotated[int, BeforeValidator(lambda value: value or 0)] = Field(default=0, ge=0, le=MAX_SEARCHES)
    nodes: tuple[MaterialNode, ...] = Field(min_length=1, max_length=MAX_NODES)

    @field_validator("nodes")
    @classmethod
    def _distinct(cls, nodes: tuple[MaterialNode, ...]) -> tuple[MaterialNode, ...]:
        if len({node.id for node in nodes}) < len(nodes):
            raise NotAllowedError("must have ids that differ", "各节点的 id 不能重复")
        return nodes


def read_request(payload: Payload) -> MaterialRequest:
    """The request in a payload's own fields. Raises ``BAD_PAYLOAD`` that names the field."""
    try:
        return MaterialRequest.model_validate(payload.model_extra or {})
    except ValidationError as error:
        en, zh = describe(error)
        raise PermanentError(Code.BAD_PAYLOAD, en=f"payload refused: {en}", zh=f"任务内容不合要求：{zh}") from error


# ---------------------------------------------------------------- artefacts


class PlannedNode(Shape):
    """A node and what is asked for it: a ``question``, or a ``status`` that says why nothing is asked."""

    node: MaterialNode
    question: str = ""
    status: str = ""
    reason: str = ""


class MaterialPlan(Shape):
    """``material-plan.json``: the questions of a task, before anything is searched."""

    task_id: str
    kb_id: str
    max_searches: int
    nodes: tuple[PlannedNode, ...]


class Transfer(Shape):
    """What may be shown of a node's material: rewritten for the account, checked for leaks."""

    structure: str
    technique: str
    setup: str
    camera: str
    style: str
    bridge: str


class NodeFound(Shape):
    """What came of one node. ``cards`` are the numbers of the kept cards; their text is gone."""

    id: str
    status: str
    reason: str = ""
    source: str = ""
    cards: tuple[str, ...] = ()
    transfer: Transfer | None = None
    degraded: tuple[JsonObject, ...] = ()


class MaterialFound(Shape):
    """``material-found.json``: all nodes in the plan's order. ``off``: the feature is off for this task."""

    task_id: str
    nodes: tuple[NodeFound, ...]
    off: bool = False


class NodeReport(Shape):
    """What the result tells of a node; ``kept`` counts cards, ``source`` says where they came from."""

    id: str
    status: str
    reason: str = ""
    kept: int = 0
    source: str = ""


class MaterialOutcome(Shape):
    """``material-outcome.json``: all that the result needs."""

    task_id: str
    material_content: str
    nodes: tuple[NodeReport, ...] = ()
    processed_sources: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    degraded: tuple[JsonObject, ...] = ()


class MaterialResult(Result):
    """The result of ``material_search``: that of every job, and two fields more."""

    material_content: str = ""
    nodes: tuple[NodeReport, ...] = ()
