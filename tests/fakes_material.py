"""Material retrieval in memory: cards by question, a model that screens and transfers, a worker with both."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tasks.contract.shape import JsonObject
from tasks.knowledge.degrade import OnZero
from tasks.knowledge.found import Found, Hit, Status
from tasks.knowledge.material import MaterialRules
from tasks.ports import KnowledgeMounts, MaterialDesk, ModelCall, Ports
from tests.fakes import World
from worker.material_rules import load_material_rules
from worker.setting_areas import MaterialSettings

CONFIG = Path(__file__).resolve().parents[1] / "config"
CARD = (
    "编号：28325-3\n"
    "内容含义：被当众刁难的摊主不吵不闹，把对方的外行话一句句拆穿\n"
    "人物：周铁锅（摊主）、贺总\n"
    "台词：「你锅都没热透，也配谈火候？」\n"
    "道具：豁口铁锅、半瓶老抽\n"
    "铺垫量级：短\n"
    "镜头语言：先给围观者的脸，再落到手上的动作\n"
)
OTHER_CARD = "编号：1102-7\n内容含义：一盘深夜的面让加班的人坐下来\n人物：店家\n铺垫：长\n"
TRANSFER = {
    "structure": "[以为要当众出丑] —被一串专业细节打破→ [刁难的人先低头]",
    "technique": "专业细节反击",
    "setup": "短",
    "camera": "先拍旁人反应，再推近手部",
    "style": "暖光纪实",
    "bridge": "修表师傅被顾客质疑走时不准，他报出机芯的每一处磨损，对方收回了话。",
}
LEAKING = {**TRANSFER, "bridge": "周铁锅报出每一处磨损，对方收回了话。"}


def rules(on_zero: OnZero = "guidance", **changes: Any) -> MaterialRules:
    """The shipped rules."""
    return replace(load_material_rules(CONFIG, MaterialSettings(on_zero=on_zero)), **changes)


def node(number: int | str = 1, **changes: Any) -> JsonObject:
    """A node that may be searched for."""
    return {
        "id": f"n{number}",
        "title": f"节点标题{number}",
        "timeRange": "0-3s",
        "function": "钩子",
        "gapObject": "被质疑的修表师傅",
        "breakMethod": "预期反转",
        "anchor": "老街修表铺",
        "method": "极致行为·感官刺激",
        "subtype": "专业碾压",
        "account": "老街修表铺的修表师傅",
        **changes,
    }


def payload(*nodes: JsonObject, number: int | str = 1, **changes: Any) -> JsonObject:
    """A ``material_search`` job."""
    return {
        "taskId": f"material-c{number}-m{number}",
        "skill": "material_search",
        "conversationId": f"c{number}",
        "messageId": f"m{number}",
        "resultFile": f"results/material-c{number}-m{number}.json",
        "nodes": list(nodes or (node(),)),
        **changes,
    }


@dataclass
class FakeSource:
    """Answers each search with the next of ``answers`` (the last one again and again)."""

    name: str = "weknora"
    answers: list[Found] = field(default_factory=lambda: [Found(Status.HIT, (Hit(CARD, score=0.6),))])
    asked: list[tuple[str, str]] = field(default_factory=list)

    def find(self, kb_id: str, question: str, *, timeout: float) -> Found:
        self.asked.append((kb_id, question))
        return self.answers[min(len(self.asked), len(self.answers)) - 1]


def cards(*bodies: str) -> Found:
    return Found(Status.HIT, tuple(Hit(body, score=0.9 - at / 10) for at, body in enumerate(bodies)))


def screen(prompt: str, isomorphic: Callable[[str], object] = lambda body: "刁难" in body) -> str:
    """What a willing model says of the cards in a prompt: K-labels and their bodies."""
    found = re.findall(r"素材卡片 (K\d+)\]\]\]\n(.*?)\n\[\[\[", prompt, re.DOTALL)
    verdicts = [{"card": label, "isomorphic": isomorphic(body)} for label, body in found]
    return json.dumps({"cards": verdicts}, ensure_ascii=False)


def willing(transfers: Sequence[JsonObject | str] = (TRANSFER,), **options: Any) -> Callable[[ModelCall], str]:
    """Screens, then transfers; the next of ``transfers`` for each transfer call, the last one again and again."""
    calls: list[ModelCall] = []

    def reply(call: ModelCall) -> str:
        if call.schema_name == "material_rescreen":
            return screen(call.user, **options)
        calls.append(call)
        chosen = transfers[min(len(calls), len(transfers)) - 1]
        return chosen if isinstance(chosen, str) else json.dumps(chosen, ensure_ascii=False)

    return reply


@dataclass
class MaterialWorld(World):
    """A worker with a material desk."""

    desk: MaterialDesk = field(default_factory=lambda: MaterialDesk(rules(), FakeSource()))
    mounts: KnowledgeMounts = field(default_factory=KnowledgeMounts)

    @property
    def ports(self) -> Ports:
        return replace(super().ports, material=self.desk, knowledge=self.mounts)

    def run(self, document: JsonObject) -> dict[str, Any]:
        """The result of one job."""
        self.accept(document)
        self.settle(patience_s=30.0)
        return self.result(str(document["taskId"]))
