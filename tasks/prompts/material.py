"""The two prompts of material retrieval: re-screen and transfer; must not put foreign text outside a block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tasks.contract.knowledge import NodeKnowledge
from tasks.contract.material import MaterialNode
from tasks.contract.shape import JsonObject
from tasks.prompts.foreign import begin_mark, block, end_mark
from tasks.prompts.prompt import NOTHING_MOUNTED, Prompt, Repair, injected_knowledge, repair_text
from tasks.prompts.template import fill, load

RESCREEN, TRANSFER = "material_rescreen", "material_transfer"
_STRICT: JsonObject = {"type": "object", "additionalProperties": False}
_TEXTS: JsonObject = {"type": "array", "items": {"type": "string"}}


def rescreen_prompt(
    node: MaterialNode,
    cards: Mapping[str, str],
    *,
    limit: int,
    nonce: str,
    knowledge: NodeKnowledge = NOTHING_MOUNTED,
    repair: Repair | None = None,
) -> Prompt:
    """Which of the cards (label → body) have the node's gap structure. Scores are not shown: they never decide."""
    data = [*_cards(cards, nonce), block("节点", _told(node), nonce)]
    rules = fill("material_rescreen_rules", {"limit": str(limit)})
    return _prompt(RESCREEN, rules, data, nonce, knowledge, repair)


def transfer_prompt(
    node: MaterialNode,
    cards: Mapping[str, str],
    *,
    nonce: str,
    knowledge: NodeKnowledge = NOTHING_MOUNTED,
    repair: Repair | None = None,
) -> Prompt:
    """Rewrite what the kept cards do for the node's own account."""
    account = [block("账号", node.account, nonce)] if node.account else []
    data = [*_cards(cards, nonce), *account, block("节点", _told(node), nonce)]
    return _prompt(TRANSFER, load("material_transfer_rules"), data, nonce, knowledge, repair)


def rescreen_schema() -> JsonObject:
    """The reply of the re-screen."""
    card = {
        "card": {"type": "string"},
        "isomorphic": {"type": ["boolean", "null"]},
        "names": _TEXTS,
        "lines": _TEXTS,
        "props": _TEXTS,
    }
    item = {**_STRICT, "properties": card, "required": list(card)}
    return {**_STRICT, "properties": {"cards": {"type": "array", "items": item}}, "required": ["cards"]}


def transfer_schema() -> JsonObject:
    """The reply of the transfer."""
    names = ("structure", "technique", "setup", "camera", "style", "bridge")
    fields: JsonObject = {name: {"type": "string"} for name in names}
    return {**_STRICT, "properties": fields, "required": list(names)}


def _cards(cards: Mapping[str, str], nonce: str) -> list[str]:
    return [block(f"素材卡片 {label}", body, nonce) for label, body in cards.items()]


def _told(node: MaterialNode) -> str:
    told = {
        "标题": node.title,
        "时间": node.time_range,
        "段落功能": node.function,
        "落差对象": node.gap_object,
        "打破方式": node.break_method,
        "具象锚点": node.anchor,
        "候选创作方法": node.method,
        "判定层子类": node.subtype,
    }
    return "\n".join(f"{name}：{value}" for name, value in told.items() if value)


def _prompt(
    template: str,
    rules: str,
    data: Sequence[str],
    nonce: str,
    knowledge: NodeKnowledge,
    repair: Repair | None,
) -> Prompt:
    values = {
        "rules": rules,
        "format": load(f"{template}_format"),
        "begin": begin_mark(nonce),
        "end": end_mark(nonce),
        "data": "\n\n".join(data),
        "repair": repair_text(repair, nonce),
    }
    injected = injected_knowledge(template, knowledge, nonce)
    return Prompt(system=load("material_system"), user=fill(template, injected | values))
