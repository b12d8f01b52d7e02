"""A QA page is written only when all conditions of CONTRACT §4.5 hold, and a refusal tells every reason."""

from __future__ import annotations

from typing import Any

import pytest

from tasks.contract.answer import SCORES, Answer, QaEvaluation
from tasks.contract.payload import AnswerPolicy
from tasks.contract.selection import ReadLevel
from tasks.rules.answer import settle
from tasks.rules.high_value import Decision, decide, evaluation_document
from tests.answer_material import PAGE_A, answer, evidence, payload

ALLOWED = AnswerPolicy(write_high_value_answer_to_qa=True)
GOOD = {
    "reuseValue": 1,
    "synthesisDepth": 1,
    "evidenceQuality": 1,
    "stability": 1,
    "actionability": 0,
    "reason": "常被问到",
}


def decision(given: Answer, policy: AnswerPolicy = ALLOWED) -> Decision:
    return decide(given, settle(given, evidence(PAGE_A), payload()), policy)


def test_all_conditions_met() -> None:
    assert decision(answer()) == Decision(write=True)


def test_high_value_asks_for_a_page_too() -> None:
    assert decision(answer(highValue=True, qa={"write": False})).write


def test_nothing_is_told_when_it_was_not_asked_for() -> None:
    given = answer(highValue=False, qa={"write": False}, qaEvaluation=None)
    assert decision(given, AnswerPolicy()) == Decision(write=False)


INSUFFICIENT = {"knowledgeSufficient": False}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (INSUFFICIENT, "证据不足"),
        ({**INSUFFICIENT, "sources": []}, "没有稳定的知识库来源"),
        ({"sources": [{"path": PAGE_A.path}, {"path": "x.md"}]}, "没有作为证据读取过"),
        ({"qaEvaluation": None}, "缺少 qaEvaluation"),
        ({"qaEvaluation": {**GOOD, "reason": "  "}}, "reason"),
        ({"qaEvaluation": {**GOOD, "attachmentDriven": True}}, "附件"),
        ({"qaEvaluation": {**GOOD, "ephemeral": True}}, "一次性"),
        ({"qaEvaluation": {**GOOD, "stability": 0, "score": 5}}, "合计 3/5"),
        ({"readLevel": ReadLevel.GUESSED}, "推测修复"),
    ],
)
def test_each_condition_refuses_alone(change: dict[str, Any], reason: str) -> None:
    found = decision(answer(**change))
    assert not found.write
    assert any(reason in sentence for sentence in found.refusals)


def test_the_policy_refuses() -> None:
    found = decision(answer(), AnswerPolicy())
    assert not found.write
    assert len(found.refusals) == 1


def test_every_reason_is_told() -> None:
    bad = answer(**INSUFFICIENT, sources=[], qaEvaluation={"ephemeral": True, "attachmentDriven": True, "reason": "x"})
    assert len(decision(bad, AnswerPolicy()).refusals) == 6


@pytest.mark.parametrize("points", range(6))
def test_the_score_is_the_sum_of_its_parts(points: int) -> None:
    evaluation = QaEvaluation(**dict.fromkeys(SCORES[:points], 1), reason="r", score=5)
    assert evaluation_document(evaluation)["score"] == points
    assert decision(answer(qaEvaluation=evaluation)).write is (points >= 4)


def test_no_evaluation_is_an_empty_object() -> None:
    assert evaluation_document(None) == {}
