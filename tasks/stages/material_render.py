"""render: ``{material_content}`` and the report of its nodes (CONTRACT §7); must not search nor ask a model."""

from __future__ import annotations

from tasks.contract.material import (
    MaterialFound,
    MaterialNode,
    MaterialOutcome,
    MaterialPlan,
    MaterialResult,
    NodeFound,
    NodeReport,
)
from tasks.contract.shape import JsonObject
from tasks.errors import PermanentError
from tasks.knowledge.material import NUMBERS, Block, MaterialRules, guidance, material_content
from tasks.ports import Failure
from tasks.stages.job import Job, failure_of
from tasks.stages.material_find import GUIDANCE
from tasks.stages.publish import result_of_failure

OVER_LIMIT = "OVER_LIMIT"
_QUIET = ("HIT", "ZERO_HIT", "SKIPPED")


def render(
    plan: MaterialPlan, found: MaterialFound, rules: MaterialRules, degraded: list[JsonObject]
) -> MaterialOutcome:
    """``material-outcome.json``; ``degraded``: what is to tell beside what the nodes tell."""
    blocks: list[Block] = []
    reports: list[NodeReport] = []
    for planned, node in zip(plan.nodes, found.nodes, strict=True):
        block = None if found.off else _block(planned.node, node, rules)
        full = block is not None and len(blocks) == len(NUMBERS)
        if block is not None and not full:
            blocks.append(block)
        reports.append(_report(node, shown=block is not None, full=full, off=found.off))
    told = [entry for node in found.nodes for entry in node.degraded]
    sources = (node.source for node in found.nodes if node.source not in ("", GUIDANCE))
    return MaterialOutcome(
        task_id=plan.task_id,
        material_content=material_content(blocks, off=found.off),
        nodes=tuple(reports),
        processed_sources=tuple(dict.fromkeys(sources)),
        errors=tuple(
            f"节点 {r.id}：{r.reason}" for r in reports if r.reason and r.status not in _QUIET and not found.off
        ),
        degraded=tuple(_distinct([*degraded, *told])),
    )


def _block(node: MaterialNode, found: NodeFound, rules: MaterialRules) -> Block | None:
    if found.transfer is not None:
        return Block(node, "、".join(found.cards), found.transfer)
    if found.source == GUIDANCE and (transfer := guidance(node, rules.setup_of_function)):
        return Block(node, node.subtype, transfer)
    return None


def _report(node: NodeFound, *, shown: bool, full: bool, off: bool) -> NodeReport:
    status, reason = node.status, node.reason
    if full:
        status, reason = OVER_LIMIT, f"素材内容最多 {len(NUMBERS)} 个节点，本节点未写入"
    elif node.source == GUIDANCE and not shown and not off:
        reason = f"{reason}；节点没有判定层子类，未写入".lstrip("；")
    return NodeReport(
        id=node.id, status=status, reason=reason, kept=len(node.cards) if shown and not full else 0, source=node.source
    )


def _distinct(entries: list[JsonObject]) -> list[JsonObject]:
    found: list[JsonObject] = []
    for entry in entries:
        if entry not in found:
            found.append(entry)
    return found


# ---------------------------------------------------------------- the result


def material_result(job: Job) -> MaterialResult:
    """The one result of the job, also when it failed."""
    if job.failure is None:
        try:
            return _result_of(job.material_outcome, job.timings())
        except PermanentError as error:  # a lost or damaged artefact: the job still gets its one result
            job.failure = failure_of(error)
    return _failed(job.task_id, job.failure, job.timings())


def _result_of(outcome: MaterialOutcome, timings: dict[str, int]) -> MaterialResult:
    return MaterialResult(
        success=True,
        task_id=outcome.task_id,
        material_content=outcome.material_content,
        nodes=outcome.nodes,
        processed_sources=outcome.processed_sources,
        errors=outcome.errors,
        timings=timings,
        degraded=outcome.degraded,
    )


def _failed(task_id: str, failure: Failure, timings: dict[str, int]) -> MaterialResult:
    plain = result_of_failure(task_id, failure, timings)
    return MaterialResult(**{name: getattr(plain, name) for name in type(plain).model_fields})
