"""plan: the question of each node, or why none is asked (CONTRACT §7); must not search."""

from __future__ import annotations

from tasks.contract.material import MaterialNode, MaterialPlan, PlannedNode, read_request
from tasks.contract.payload import Payload
from tasks.knowledge.material import MaterialRules
from tasks.knowledge.question import mirror_question

SKIPPED, REFUSED, OVER_BUDGET = "SKIPPED", "REFUSED", "OVER_BUDGET"


def plan(payload: Payload, rules: MaterialRules) -> MaterialPlan:
    """``material-plan.json``. Raises ``BAD_PAYLOAD`` for nodes that are none; a bad question is told at its node."""
    request = read_request(payload)
    limit = request.max_searches or rules.max_searches
    planned: list[PlannedNode] = []
    for node in request.nodes:
        asked = sum(bool(other.question) for other in planned)
        planned.append(_planned(node, rules, room=asked < limit))
    return MaterialPlan(
        task_id=payload.task_id, kb_id=request.kb_id or rules.kb_id, max_searches=limit, nodes=tuple(planned)
    )


def _planned(node: MaterialNode, rules: MaterialRules, *, room: bool) -> PlannedNode:
    if node.bridge:
        return PlannedNode(node=node, status=SKIPPED, reason="已有桥段，不检索")
    question = mirror_question(node, rules.words)
    if question.refusal:
        return PlannedNode(node=node, status=REFUSED, reason=question.refusal)
    if not room:
        return PlannedNode(node=node, status=OVER_BUDGET, reason="本任务的检索次数已用完，未检索")
    return PlannedNode(node=node, question=question.text)
