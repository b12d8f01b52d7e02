"""Whether an answer becomes a QA page (CONTRACT §4.5, seed 003 "高价值问答沉淀"); must not write or change it.

The model proposes, fixed conditions decide. A refusal is told to the team with every reason; what was not asked for is
not talked about.
"""

from __future__ import annotations

from dataclasses import dataclass

from tasks.contract.answer import Answer, QaEvaluation
from tasks.contract.payload import AnswerPolicy
from tasks.contract.selection import ReadLevel
from tasks.contract.shape import JsonObject
from tasks.rules.answer import Settled

MIN_SCORE = 4
MAX_SCORE = 5


@dataclass(frozen=True)
class Decision:
    """``write``: keep the answer as a page · ``refusals``: Chinese reasons why not, empty when nobody asked."""

    write: bool
    refusals: tuple[str, ...] = ()


def decide(answer: Answer, settled: Settled, policy: AnswerPolicy) -> Decision:
    """All conditions must hold; ``settled`` is what remains of ``answer`` after its own rules."""
    if not (answer.qa.write or answer.high_value):
        return Decision(write=False)
    reasons = [
        *_about_policy_and_reply(answer, settled, policy),
        *_about_evaluation(answer.qa_evaluation),
    ]
    if not reasons:
        return Decision(write=True)
    return Decision(write=False, refusals=tuple(f"未写入 QA 页面：{reason}" for reason in reasons))


def evaluation_document(evaluation: QaEvaluation | None) -> JsonObject:
    """The evaluation as the result shows it, with the ``score`` computed from its parts; ``{}`` when there is none."""
    if evaluation is None:
        return {}
    return {**evaluation.document(), "score": evaluation.total}


def _about_policy_and_reply(answer: Answer, settled: Settled, policy: AnswerPolicy) -> list[str]:
    checks = [
        (policy.write_high_value_answer_to_qa, "answerPolicy.writeHighValueAnswerToQa 不允许写入"),
        (settled.knowledge_sufficient, "知识库证据不足以支撑这个回答"),
        (bool(settled.sources), "没有稳定的知识库来源页面"),
        (not settled.foreign_sources, "回答引用了没有作为证据读取过的页面"),
        (answer.read_level is not ReadLevel.GUESSED, "模型回复的 JSON 有语法错误，靠推测修复后才能读取"),
    ]
    return [reason for holds, reason in checks if not holds]


def _about_evaluation(evaluation: QaEvaluation | None) -> list[str]:
    if evaluation is None or not evaluation.reason.strip():
        return ["缺少 qaEvaluation 或其中的 reason"]
    checks = [
        (not evaluation.attachment_driven, "回答主要依据本轮临时附件（attachmentDriven）"),
        (not evaluation.ephemeral, "问题是一次性或临时的（ephemeral）"),
        (evaluation.total >= MIN_SCORE, f"五项评分合计 {evaluation.total}/{MAX_SCORE}，至少需要 {MIN_SCORE}"),
    ]
    return [reason for holds, reason in checks if not holds]
