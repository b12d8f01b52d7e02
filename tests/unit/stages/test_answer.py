"""answer: the model's own answer; what breaks a rule goes back, what remains is left to apply."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tasks.contract.answer import Answer
from tasks.contract.context import Context, Conversation, KbView
from tasks.contract.evidence import Evidence, EvidencePage
from tasks.contract.payload import Payload
from tasks.errors import Code, PermanentError
from tasks.stages.answer import answer
from tasks.stages.ask import Asker
from tests.fakes_folder import MemoryFolder
from tests.fakes_model import FakeModel, StillClock
from tests.model_shapes import Reply, completion

PAYLOAD = Payload(
    task_id="query-1-2", conversation_id="1", message_id="2", skill="kb_query", question="主键热点怎么打散？"
)
CONTEXT = Context(
    task_id=PAYLOAD.task_id,
    question=PAYLOAD.question,
    conversation=Conversation(conversation_id="1", message_id="2"),
    kb=KbView(repo="o/r", commit="a" * 40),
)
EVIDENCE = Evidence(
    task_id=PAYLOAD.task_id,
    question=PAYLOAD.question,
    commit="a" * 40,
    evidence_pages=(EvidencePage(path="concepts/a.md", title="甲", content="用 AUTO_RANDOM 打散写入。"),),
)


def reply(*sources: str, **more: Any) -> Reply:
    document = {
        "answer": "结论：用 AUTO_RANDOM 打散写入热点。",
        "knowledgeSufficient": True,
        "sources": [{"path": path} for path in sources],
        "usedAttachments": [],
        "highValue": False,
        "qaEvaluation": {"reason": "一般"},
        "qa": {"write": False},
        "errors": [],
    }
    return completion(json.dumps(document | more, ensure_ascii=False))


def run(*replies: Reply, payload: Payload = PAYLOAD) -> tuple[Answer, FakeModel]:
    model, clock = FakeModel(), StillClock()
    model.play(*replies)
    ask = Asker("answer", payload.task_id, payload.question, model, MemoryFolder(), clock, clock.now() + 900)
    return answer(payload, CONTEXT, EVIDENCE, ask=ask), model


def test_a_clean_answer_is_taken_as_it_is() -> None:
    found, model = run(reply("concepts/a.md"))
    assert [source.path for source in found.sources] == ["concepts/a.md"]
    assert len(model.calls) == 1
    assert (model.calls[0].stage, model.calls[0].schema_name) == ("answer", "kb_answer")


def test_the_model_sees_the_evidence_in_the_user_message_only() -> None:
    _, model = run(reply("concepts/a.md"))
    assert "用 AUTO_RANDOM 打散写入。" in model.calls[0].user
    assert "AUTO_RANDOM" not in model.calls[0].system


def test_the_policy_decides_what_the_model_may_do() -> None:
    policy = {"allowNonKbSupplementWhenInsufficient": True, "writeHighValueAnswerToQa": True}
    allowed = Payload.model_validate(PAYLOAD.document() | {"answerPolicy": policy})
    _, model = run(reply("concepts/a.md"), payload=allowed)
    assert "本轮允许沉淀" in model.calls[0].user
    assert "以下为非知识库结论" in model.calls[0].user


def test_a_source_outside_the_evidence_goes_back_by_name() -> None:
    found, model = run(reply("concepts/x.md"), reply("concepts/a.md"))
    assert [source.path for source in found.sources] == ["concepts/a.md"]
    assert "concepts/x.md" in model.calls[1].user
    assert [call.session for call in model.calls] == ["query-1-2", "query-1-2.r1"]


def test_what_remains_after_two_re_asks_is_left_to_apply() -> None:
    found, model = run(reply("concepts/x.md"), reply("concepts/y.md"), reply("concepts/z.md"))
    assert [source.path for source in found.sources] == ["concepts/z.md"]
    assert len(model.calls) == 3


def test_an_unreadable_last_reply_does_not_throw_away_a_readable_one() -> None:
    found, _ = run(reply("concepts/x.md"), completion(""), completion('{"answer": "半'))
    assert [source.path for source in found.sources] == ["concepts/x.md"]


def test_half_answers_never_get_out() -> None:
    with pytest.raises(PermanentError) as caught:
        run(*[completion('{"answer": "半截')] * 3)
    assert caught.value.code is Code.TRUNCATED
