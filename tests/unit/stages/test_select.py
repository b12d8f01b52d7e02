"""select: the model's own choice, one more try when nothing of it exists, empty is fine."""

from __future__ import annotations

import json

import pytest

from tasks.contract.context import Context, Conversation, KbView
from tasks.contract.payload import Payload
from tasks.contract.selection import PageSelection
from tasks.errors import Code, PermanentError
from tasks.stages.ask import Asker
from tasks.stages.select import select
from tests.fakes_folder import MemoryFolder
from tests.fakes_kb_reader import FakeSnapshot
from tests.fakes_model import FakeModel, StillClock
from tests.model_shapes import Reply, completion

SNAPSHOT = FakeSnapshot("a" * 40, {"concepts/a.md": b"# A\n", "concepts/b.md": b"# B\n", "README.md": b"# R\n"})
PAYLOAD = Payload(
    task_id="query-1-2", conversation_id="1", message_id="2", skill="kb_query", question="主键热点怎么打散？"
)
CONTEXT = Context(
    task_id=PAYLOAD.task_id,
    question=PAYLOAD.question,
    conversation=Conversation(conversation_id="1", message_id="2"),
    kb=KbView(repo="o/r", commit=SNAPSHOT.commit),
)


def choice(*paths: str) -> Reply:
    pages = [{"path": path, "reason": "需要", "expectedUse": "回答"} for path in paths]
    return completion(json.dumps({"rationale": "思路", "selectedPages": pages, "unresolvedQuestions": []}))


def run(*replies: Reply) -> tuple[PageSelection, FakeModel]:
    model, clock = FakeModel(), StillClock()
    model.play(*replies)
    ask = Asker("select", PAYLOAD.task_id, PAYLOAD.question, model, MemoryFolder(), clock, clock.now() + 900)
    return select(PAYLOAD, CONTEXT, snapshot=SNAPSHOT, ask=ask), model


def paths(selection: PageSelection) -> list[str]:
    return [page.path for page in selection.selected_pages]


def test_the_choice_stays_as_the_model_wrote_it() -> None:
    selection, model = run(choice("/concepts/a.md", "missing.md"))
    assert paths(selection) == ["/concepts/a.md", "missing.md"]
    assert len(model.calls) == 1


def test_the_model_is_asked_with_the_selection_schema_and_the_question() -> None:
    _, model = run(choice())
    call = model.calls[0]
    assert (call.stage, call.schema_name) == ("select", "page_selection")
    assert set(call.schema["properties"]) == {"rationale", "selectedPages", "unresolvedQuestions"}  # type: ignore[call-overload]
    assert PAYLOAD.question in call.user
    assert PAYLOAD.question not in call.system


def test_an_empty_choice_is_legal_and_not_asked_again() -> None:
    selection, model = run(choice())
    assert (paths(selection), len(model.calls)) == ([], 1)


def test_when_nothing_remains_the_model_is_told_which_paths_and_asked_once_more() -> None:
    selection, model = run(choice("x.md", "README.md", "../y"), choice("concepts/b.md"))
    assert paths(selection) == ["concepts/b.md"]
    told = model.calls[1].user
    assert "x.md（不存在）；README.md（不可见）；../y（路径不允许）" in told


def test_and_then_the_job_goes_on_without_pages() -> None:
    selection, model = run(choice("x.md"), choice("y.md"))
    assert (paths(selection), len(model.calls)) == (["y.md"], 2)


def test_a_second_thought_may_be_empty() -> None:
    selection, _ = run(choice("x.md"), choice())
    assert paths(selection) == []


def test_replies_that_are_no_selection_fail_the_job_by_name() -> None:
    with pytest.raises(PermanentError) as caught:
        run(completion("{}"), completion("[1]"), completion("不"))
    assert caught.value.code is Code.INVALID_JSON
    assert "replies/select-3.txt" in caught.value.zh
