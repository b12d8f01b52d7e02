"""Exactly one result a job: all fields, the same bytes everywhere, whatever happened before."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tasks.contract.answer import AnswerSource, UsedAttachment
from tasks.contract.outcome import Outcome, Receipt
from tasks.contract.payload import Payload
from tasks.contract.result import Result
from tasks.errors import Code, PermanentError, TransientError
from tasks.ports import Failure
from tasks.stages.job import Job, failure_of
from tasks.stages.publish import publish, result_of, result_of_failure
from tests.fakes import FailingAt, MemorySink, World, payload

TASK = "query-c1-m1"
FIELDS = list(Result(success=True, task_id="x").document())
ENTRY = {"path": "qa/a.md", "title": "题"}
OUTCOME = Outcome(
    task_id=TASK,
    answer="好\n\n## 参考来源\n\n- 《租约》 concepts/lease.md\n",
    knowledge_sufficient=True,
    sources=(AnswerSource(path="concepts/lease.md", title="租约"),),
    used_attachments=(UsedAttachment(attachment_id=7, file_name="a.docx"),),
    qa_evaluation={"reuseValue": 1},
    processed_sources=("team-kb",),
    skipped_sources=("没有写入：…",),
    errors=("模型提示：…",),
    degraded=({"stage": "answer", "source": "model", "status": "RECORDED"},),
)


def job_with(world: World, outcome: Outcome | None = OUTCOME, receipt: Receipt | None = None, **facts: Any) -> Job:
    folder = world.folder(TASK)
    folder.write("payload.json", json.dumps(payload()).encode())
    if outcome:
        folder.write("outcome.json", json.dumps(outcome.document()).encode())
    if receipt:
        folder.write("receipt.json", json.dumps(receipt.document()).encode())
    return Job(TASK, folder, world.ports, world.clock.now() + 900, **facts)


def delivered(world: World, path: str = f"results/{TASK}.json") -> list[bytes]:
    return world.sink.delivered.get(path, [])


@pytest.mark.parametrize(
    "result",
    [
        result_of(OUTCOME, None, {}),
        result_of(OUTCOME, Receipt(task_id=TASK, commit_id="a" * 40, path="qa/a.md", created=True, entry=ENTRY), {}),
        result_of_failure(TASK, Failure("DEADLINE", "late", "超时", retryable=True), {}),
    ],
    ids=["answer", "page", "failure"],
)
def test_all_fields_are_always_there_and_of_their_kind(result: Result) -> None:
    document = result.document()

    assert list(document) == FIELDS
    assert None not in document.values()


class SleepySink(MemorySink):
    """When its first writer wakes up, a replay has fixed and delivered another result."""

    job: Job | None = None

    def deliver(self, payload: Payload | None, task_id: str, document: bytes) -> None:
        job, self.job = self.job, None
        if job:
            job.folder.write("result.json", b"new")
            super().deliver(payload, task_id, b"new")
        super().deliver(payload, task_id, document)


def test_a_publisher_that_slept_through_a_replay_leaves_the_new_result_in_place() -> None:
    sink = SleepySink()
    world = World(sink=sink)
    sink.job = job = job_with(world)
    publish(job)

    assert [document == b"new" for document in delivered(world)] == [True, False, True]


def test_a_page_that_was_created() -> None:
    receipt = Receipt(task_id=TASK, commit_id="a" * 40, path="qa/a.md", created=True, entry=ENTRY)

    result = result_of(OUTCOME, receipt, {"prepare": 3}).document()

    assert (result["createdQaPath"], result["commitId"]) == ("qa/a.md", "a" * 40)
    assert (result["createdPages"], result["updatedPages"]) == ([ENTRY], [])
    assert result["timings"] == {"prepare": 3}


def test_a_page_that_was_updated() -> None:
    receipt = Receipt(task_id=TASK, commit_id="a" * 40, path="qa/a.md", created=False, entry=ENTRY)

    result = result_of(OUTCOME, receipt, {}).document()

    assert result["createdQaPath"] == "qa/a.md"
    assert (result["createdPages"], result["updatedPages"]) == ([], [ENTRY])


def test_a_commit_that_was_refused_still_answers_and_says_why() -> None:
    result = result_of(OUTCOME, Receipt(task_id=TASK, errors=("分支受保护",)), {}).document()

    assert result["success"] is True
    assert (result["createdQaPath"], result["commitId"], result["createdPages"]) == ("", "", [])
    assert result["errors"] == ["模型提示：…", "分支受保护"]


def test_a_failure_says_what_happened_and_whether_to_try_again() -> None:
    world = World()
    publish(job_with(world, None, failure=Failure("KB_UNREACHABLE", "away", "无法连接 git.example", retryable=True)))

    result = json.loads(delivered(world)[0])
    assert list(result) == FIELDS
    assert (result["success"], result["errorCode"], result["retryable"]) == (False, "KB_UNREACHABLE", True)
    assert result["errors"] == ["无法连接 git.example"]
    assert (result["answer"], result["processedSources"]) == ("", [])


def test_once_the_knowledge_base_was_read_a_failure_says_so_too() -> None:
    world = World()
    world.accept(payload())
    world.step()
    world.model.play(PermanentError(Code.MODEL_AUTH, en="refused", zh="模型拒绝访问"))
    world.settle()

    assert world.result(TASK)["processedSources"] == ["team-kb"]


@pytest.mark.parametrize(
    ("error", "retryable"),
    [
        (PermanentError(Code.NO_MODEL, en="none", zh="没有模型"), False),
        (TransientError(Code.KB_UNREACHABLE, en="away", zh="不在"), True),
        (PermanentError(Code.DEADLINE, en="late", zh="超时"), True),
    ],
    ids=["permanent", "transient", "deadline"],
)
def test_what_may_be_sent_again(error: Any, retryable: bool) -> None:
    assert failure_of(error).retryable is retryable


def test_the_bytes_are_fixed_once_and_delivered_as_often_as_asked() -> None:
    world = World()
    publish(job_with(world))
    changed = OUTCOME.model_copy(update={"answer": "后来的另一个回答"})
    publish(job_with(world, changed))

    first, second = delivered(world)
    assert first == second == world.folder(TASK).files["result.json"]


def test_the_result_is_kept_before_it_is_delivered() -> None:
    world = World()
    world.sink.missing.add(f"results/{TASK}.json")

    with pytest.raises(TransientError):
        publish(job_with(world))
    assert "result.json" in world.folder(TASK).files


def test_every_place_that_was_asked_for_gets_the_same_bytes() -> None:
    world = World()
    publish(job_with(world, more_result_files=("results/b.json", "results/c.json", f"results/{TASK}.json")))

    assert {path: len(bodies) for path, bodies in world.sink.delivered.items()} == {
        f"results/{TASK}.json": 1,
        "results/b.json": 1,
        "results/c.json": 1,
    }
    assert len({body for bodies in world.sink.delivered.values() for body in bodies}) == 1


def test_a_place_that_is_missing_is_tried_again_after_all_others_got_theirs() -> None:
    world = World()
    world.sink.missing.add(f"results/{TASK}.json")
    world.sink.forbidden.add("results/b.json")

    with pytest.raises(TransientError):
        publish(job_with(world, more_result_files=("results/b.json", "results/c.json")))
    assert len(delivered(world, "results/c.json")) == 1


def test_a_job_without_a_result_file_is_answered_elsewhere() -> None:
    world = World()
    job = job_with(world)
    world.folder(TASK).write("payload.json", json.dumps(payload(resultFile=None)).encode())

    publish(job)

    assert world.sink.delivered == {}
    assert world.result(TASK)["success"]


@pytest.mark.parametrize("damaged", [None, b"{", b'{"taskId": "query-x-y", "answer": "", "knowledgeSufficient": true}'])
def test_a_lost_or_foreign_outcome_becomes_an_error_result(damaged: bytes | None) -> None:
    world = World()
    job = job_with(world, None)
    if damaged:
        world.folder(TASK).write("outcome.json", damaged)

    publish(job)

    assert json.loads(delivered(world)[0])["success"] is False
    assert job.failure is not None


@pytest.mark.parametrize("damaged", [b"", b"{", b"[]", b'{"taskId": "query-c1-m1"}'], ids=range(4))
def test_a_lost_payload_does_not_keep_the_result_from_its_place(damaged: bytes) -> None:
    world = World()
    job = job_with(world, result_file="results/known-by-the-record.json")
    world.folder(TASK).files["payload.json"] = damaged

    publish(job)

    assert json.loads(delivered(world, "results/known-by-the-record.json")[0])["success"] is True


def test_a_fenced_worker_fixes_no_bytes() -> None:
    world = World()
    job = job_with(world)
    job.guard = FailingAt(job, "guard", ZeroDivisionError()).guard

    with pytest.raises(ZeroDivisionError):
        publish(job)
    assert "result.json" not in world.folder(TASK).files
