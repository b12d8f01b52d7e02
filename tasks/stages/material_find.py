"""find: search, re-screen and transfer, one node after the other (CONTRACT §7); must not write a card's text anywhere.

Card bodies live in local variables of one node's turn and nowhere else: what is kept of a node is its transfer, which
passed the leak check, and the numbers of its cards.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tasks.contract.knowledge import KnowledgeView, NodeKnowledge
from tasks.contract.material import MaterialFound, MaterialNode, MaterialPlan, NodeFound, PlannedNode, Transfer
from tasks.contract.shape import JsonObject
from tasks.errors import Code, PermanentError
from tasks.knowledge.degrade import NOT_MOUNTED, Step
from tasks.knowledge.found import Found, Status
from tasks.knowledge.leak import Forbidden, forbidden_in, leaks, listed
from tasks.knowledge.material import SETUPS, MaterialRules, card_number, card_setup, gap_structure
from tasks.ports import MaterialDesk, MaterialSource, RawReply
from tasks.prompts.material import rescreen_prompt, rescreen_schema, transfer_prompt, transfer_schema
from tasks.prompts.prompt import Prompt, Repair
from tasks.rules.answer import Violation
from tasks.rules.budget import cut_text
from tasks.rules.material_reply import Rewriting, Screening, Verdict, read_rewriting, read_screening
from tasks.rules.reply_fault import UNREADABLE
from tasks.stages.ask import Asker, Inquiry, ReadReply
from tasks.stages.mounting import degradations

T = TypeVar("T", bound=ReadReply)

FIND, RESCREEN, TRANSFER = "find", "rescreen", "transfer"
WEKNORA, LOCAL_MD = "weknora", "local_md"
NOTHING_MOUNTED = KnowledgeView()
NONE_KEPT, BAD_TRANSFER, LEAK = "NONE_KEPT", "BAD_TRANSFER", "LEAK"
GUIDANCE = "guidance"
MAX_CARD_CHARS = 8_000


@dataclass(frozen=True)
class _Searched:
    """What the search for one node led to."""

    step: Step
    status: str
    source: str = ""
    cards: tuple[str, ...] = ()
    degraded: tuple[JsonObject, ...] = ()


def find(
    plan: MaterialPlan,
    desk: MaterialDesk,
    *,
    ask: Asker,
    knowledge: Callable[[str], KnowledgeView] = lambda _question: NOTHING_MOUNTED,
    done: Mapping[str, NodeFound],
    keep: Callable[[NodeFound], None],
) -> MaterialFound:
    """``material-found.json``. ``done`` are nodes of an attempt before; ``keep`` gets each node that is ready;
    ``knowledge`` asks what is mounted at the model's two nodes.

    One node at a time; a base that is not there, or no source that answers at all, turns the feature off. Raises what
    ``ask`` raises, but an unreadable reply is only a node without a card.
    """
    nodes: list[NodeFound] = []
    off, answered = False, False
    for planned in plan.nodes:
        found = done.get(planned.node.id) or _node(planned, plan, desk, ask, knowledge, off=off)
        if planned.node.id not in done:
            keep(found)
        off = off or found.status == Status.KB_NOT_FOUND
        answered = answered or (bool(planned.question) and bool(found.source))
        nodes.append(found)
    searched = any(planned.question for planned in plan.nodes)
    return MaterialFound(task_id=plan.task_id, nodes=tuple(nodes), off=off or (searched and not answered))


def _node(
    planned: PlannedNode,
    plan: MaterialPlan,
    desk: MaterialDesk,
    ask: Asker,
    knowledge: Callable[[str], KnowledgeView],
    *,
    off: bool,
) -> NodeFound:
    node = planned.node
    if not planned.question:
        return NodeFound(id=node.id, status=planned.status, reason=planned.reason)
    if off:
        return NodeFound(id=node.id, status=Status.KB_NOT_FOUND, reason="素材库不存在，本任务不检索")
    searched = _search(planned.question, plan.kb_id, desk, ask)
    if searched.step is Step.OFF:
        reason = (
            "素材库不存在，视为未启用" if searched.status == Status.KB_NOT_FOUND else "检索不可用，也没有本地素材库"
        )
        return NodeFound(id=node.id, status=searched.status, reason=reason, degraded=searched.degraded)
    if searched.step is Step.GUIDANCE:
        reason = "没有命中素材，仅给出判定层子类指引"
        return NodeFound(id=node.id, status=searched.status, reason=reason, source=GUIDANCE, degraded=searched.degraded)
    mounted = knowledge(planned.question)
    found = _from_cards(node, searched.cards, desk.rules, ask, mounted)
    degraded = (*searched.degraded, *degradations(mounted))
    return found.model_copy(update={"source": found.source or searched.source, "degraded": degraded})


# ---------------------------------------------------------------- search


def _search(question: str, kb_id: str, desk: MaterialDesk, ask: Asker) -> _Searched:
    """WeKnora first, always by trying it; then as the matrix says."""
    degraded: list[JsonObject] = []
    status, found = _asked(WEKNORA, desk.weknora, question, kb_id, desk, ask)
    step = desk.rules.matrix.after(status)
    if step is not Step.USE and status != Status.ZERO_HIT:
        degraded.append({"stage": FIND, "source": WEKNORA, "status": status})
    source = desk.weknora
    if step is Step.LOCAL_MD:
        source = desk.local
        local_status, found = _asked(LOCAL_MD, desk.local, question, kb_id, desk, ask)
        answered = status == Status.ZERO_HIT  # WeKnora works and has nothing: the local files only come on top
        step = Step.OFF if local_status == NOT_MOUNTED else desk.rules.matrix.after_local(Status(local_status))
        if step is Step.OFF and local_status != NOT_MOUNTED:
            degraded.append({"stage": FIND, "source": LOCAL_MD, "status": local_status})
        if step is Step.OFF and answered:
            step = Step.GUIDANCE
        elif local_status != NOT_MOUNTED:
            status = local_status
    cards = list(dict.fromkeys(cut_text(hit.content, MAX_CARD_CHARS).text for hit in found.hits))
    cards = cards[: desk.rules.match_count]  # a server may send more than it was asked for
    return _Searched(step, str(status), source.name if source else "", tuple(cards), tuple(degraded))


def _asked(
    name: str, source: MaterialSource | None, question: str, kb_id: str, desk: MaterialDesk, ask: Asker
) -> tuple[str, Found]:
    if source is None:
        desk.noted(name, NOT_MOUNTED)
        return NOT_MOUNTED, Found(Status.UNAVAILABLE)
    ask.guard()
    timeout = min(desk.rules.timeout_s, max(0.1, ask.deadline - ask.clock.monotonic()))
    found = source.find(kb_id, question, timeout=timeout)
    if found.status is Status.HIT and not any(hit.content.strip() for hit in found.hits):
        found = Found(Status.ZERO_HIT)
    desk.noted(name, found.status)
    return found.status, found


# ---------------------------------------------------------------- re-screen and transfer


def _from_cards(
    node: MaterialNode, bodies: Sequence[str], rules: MaterialRules, ask: Asker, mounted: KnowledgeView
) -> NodeFound:
    """The kept cards and their transfer; the order in which the cards came (by score) is not shown to the model."""
    cards = {f"K{number}": body for number, body in enumerate(sorted(bodies, key=_digest), 1)}
    kept = _rescreen(node, cards, rules, ask, mounted.at(RESCREEN))
    if not kept:
        reason = "召回的素材与本节点不同构或无法判断，未采用"
        return NodeFound(id=node.id, status=NONE_KEPT, reason=reason, source=GUIDANCE)
    chosen = {verdict.card: cards[verdict.card] for verdict in kept}
    numbers = tuple(card_number(body, rules.labels, f"卡{_digest(body)[:8]}") for body in chosen.values())
    forbidden = Forbidden()
    for verdict in kept:
        forbidden |= forbidden_in(chosen[verdict.card], rules.labels)
        forbidden |= listed(verdict.names, verdict.lines, verdict.props)
    check = _Check(node, tuple(chosen.values()), forbidden, rules)
    transfer, problem = _transfer(node, chosen, check, ask, mounted.at(TRANSFER))
    status, reason = problem or (str(Status.HIT), "")
    return NodeFound(id=node.id, status=status, reason=reason, cards=numbers, transfer=transfer)


def _rescreen(
    node: MaterialNode, cards: Mapping[str, str], rules: MaterialRules, ask: Asker, mounted: NodeKnowledge
) -> tuple[Verdict, ...]:
    def prompt(nonce: str, repair: Repair | None) -> Prompt:
        return rescreen_prompt(node, cards, limit=rules.max_kept, nonce=nonce, knowledge=mounted, repair=repair)

    def read(raw: RawReply, name: str) -> Screening:
        return read_screening(raw.text, finish_reason=raw.finish_reason, name=name)

    screening = _readable(ask, Inquiry(prompt, read, lambda _: [], "material_rescreen", rescreen_schema()))
    return screening.kept(frozenset(cards), rules.max_kept) if screening else ()


def _transfer(
    node: MaterialNode, cards: Mapping[str, str], check: _Check, ask: Asker, mounted: NodeKnowledge
) -> tuple[Transfer | None, tuple[str, str] | None]:
    def prompt(nonce: str, repair: Repair | None) -> Prompt:
        return transfer_prompt(node, cards, nonce=nonce, knowledge=mounted, repair=repair)

    def read(raw: RawReply, name: str) -> Rewriting:
        return read_rewriting(raw.text, finish_reason=raw.finish_reason, name=name)

    rewriting = _readable(ask, Inquiry(prompt, read, check.problems, "material_transfer", transfer_schema()))
    if rewriting is None:
        return None, (BAD_TRANSFER, "转译结果无法读取，未采用")
    left = check.problems(rewriting)
    if any(problem.code == LEAK for problem in left):
        return None, (LEAK, "转译仍照搬了原卡的人物、台词、道具或原句，未采用")
    if left:
        return None, (BAD_TRANSFER, left[0].message)
    return check.canonical(rewriting.transfer), None


@dataclass(frozen=True)
class _Check:
    """What a transfer must be: complete, of the fixed form, and without anything of the cards."""

    node: MaterialNode
    cards: tuple[str, ...]
    forbidden: Forbidden
    rules: MaterialRules

    def problems(self, rewriting: Rewriting) -> list[Violation]:
        """What the model has to mend; messages may name a card's words, so they go to the model only."""
        transfer = rewriting.transfer
        return [*self._form(transfer), *self._leaks(transfer)]

    def canonical(self, transfer: Transfer) -> Transfer:
        """The transfer as it is shown."""
        return transfer.model_copy(update={"structure": gap_structure(transfer.structure)})

    def _form(self, transfer: Transfer) -> list[Violation]:
        found = []
        if not gap_structure(transfer.structure):
            found.append(Violation("STRUCTURE", "落差结构不是 [期待A] —被X打破→ [结果B] 的形式"))
        if transfer.setup.strip() not in SETUPS:
            found.append(Violation("SETUP", "铺垫量级只能是 短、中、长 之一"))
        declared = card_setup(self.cards, self.rules.labels)
        if declared and transfer.setup.strip() not in declared:
            found.append(Violation("SETUP", f"铺垫量级应与卡片一致（{'、'.join(sorted(declared))}）"))
        blank = [name for name, value in transfer if not str(value).strip()]
        if blank:
            found.append(Violation("BLANK", f"字段 {'、'.join(blank)} 不能为空"))
        return found

    def _leaks(self, transfer: Transfer) -> list[Violation]:
        own = [str(value) for name, value in self.node if name != "id"]
        kept = [value for card in self.cards for value in self.rules.labels.values(card, "technique")]
        found = leaks([str(value) for _, value in transfer], self.forbidden, own=own, kept=kept)
        return [Violation(LEAK, f"照搬了卡片的{leak.kind}：{leak.word}") for leak in found]


def _digest(body: str) -> str:
    return hashlib.sha256(body.encode(errors="replace")).hexdigest()


def _readable(ask: Asker, inquiry: Inquiry[T]) -> T | None:
    """The reply, ``None`` when none could be read: not to decide means not to keep."""
    try:
        return ask(inquiry)
    except PermanentError as error:
        if error.code == Code.DEADLINE:  # its words tell of the last reply, which may have quoted a card
            raise PermanentError(
                Code.DEADLINE,
                en="no time is left to ask the model at stage find",
                zh="任务期限已到，来不及完成素材检索",
            ) from None
        if error.code not in UNREADABLE:
            raise
        return None
