"""``kbw run``: the same stages in one process, bounded by attempts and deadline, one result whatever happens."""

from __future__ import annotations

import json

import pytest

from tasks.errors import Code, FencedError, JobError, PermanentError, TransientError
from tasks.pipeline import run_inline
from tasks.query import query
from tasks.stages.job import Job
from tests.fakes import REPO, FailingAt, World, payload

TASK = "query-c1-m1"


def run(world: World, *, deadline_s: float = 900.0, max_attempts: int = 4) -> Job:
    folder = world.folder(TASK)
    folder.write("payload.json", json.dumps(payload()).encode())
    job = Job(TASK, folder, world.ports, deadline=world.clock.now() + deadline_s)
    run_inline(query, job, max_attempts=max_attempts)
    return job


def away() -> TransientError:
    return TransientError(Code.KB_UNREACHABLE, en="git.example is away", zh="知识库 git.example 无法连接")


def test_it_does_what_the_fleet_does() -> None:
    inline, fleet = World(), World()
    run(inline)
    fleet.accept(payload())
    fleet.settle()

    ours, theirs = inline.result(TASK), fleet.result(TASK)
    assert {**ours, "timings": 0} == {**theirs, "timings": 0}
    assert list(ours["timings"]) == list(theirs["timings"])
    assert set(inline.folder(TASK).files) == set(fleet.folder(TASK).files)


def test_a_second_run_calls_no_model_and_commits_nothing() -> None:
    world = World()
    run(world)
    before = world.folder(TASK).files["result.json"]
    run(world)

    assert len(world.model.calls) == 2
    assert len(world.writer.repos[REPO].history) == 1
    assert world.sink.delivered[f"results/{TASK}.json"] == [before, before]


def test_transient_errors_are_waited_for() -> None:
    world = World()
    world.kb = FailingAt(world.kb, "latest", away(), away())
    started = world.clock.now()

    run(world)

    assert world.result(TASK)["success"]
    assert world.events(TASK, "park") == ["prepare:park", "prepare:park"]
    assert 3.0 <= world.clock.now() - started <= 6.0


def test_attempts_have_a_limit() -> None:
    world = World()
    world.kb = FailingAt(world.kb, "latest", *[away()] * 9)

    run(world, max_attempts=3)

    assert world.kb.calls == 3
    assert world.result(TASK)["errorCode"] == "KB_UNREACHABLE"
    assert world.result(TASK)["retryable"]


def test_nothing_is_waited_for_beyond_the_deadline() -> None:
    world = World()
    later = TransientError(Code.KB_UNREACHABLE, en="busy", zh="繁忙", retry_after=100.0)
    world.kb = FailingAt(world.kb, "latest", later)
    started = world.clock.now()

    run(world, deadline_s=60.0)

    assert world.clock.now() == started
    assert world.result(TASK)["errorCode"] == "KB_UNREACHABLE"


def test_a_wait_that_the_deadline_ended_is_told_as_the_deadline_with_its_cause() -> None:
    world = World()

    class Silent:
        name, endpoint = "openai", "fake://model"

        def complete(self, call):  # type: ignore[no-untyped-def]
            world.clock.sleep(call.timeout)
            raise TransientError(Code.MODEL_UNREACHABLE, en="no answer", zh="模型没有回答")

    world.model = Silent()
    run(world, deadline_s=60.0)

    result = world.result(TASK)
    assert (result["errorCode"], result["retryable"]) == ("DEADLINE", True)
    assert "模型没有回答" in result["errors"][0]


def test_a_deadline_that_passes_between_two_stages_ends_the_job() -> None:
    world = World()
    world.attachments = type("Slow", (), {"read": lambda self, *_: world.clock.sleep(100.0) or []})()

    run(world, deadline_s=60.0)

    assert (world.result(TASK)["errorCode"], world.result(TASK)["retryable"]) == ("DEADLINE", True)
    assert world.model.calls == []


def test_a_commit_that_may_still_happen_is_finished_after_the_deadline() -> None:
    world = World()
    willing = world.model

    class Slow:
        name, endpoint = "openai", "fake://model"

        def complete(self, call):  # type: ignore[no-untyped-def]
            reply = willing.complete(call)
            world.clock.sleep(25.0 if call.stage == "select" else 34.9)
            return reply

    world.model = Slow()
    run(world, deadline_s=60.0)

    result = world.result(TASK)
    assert result["success"]
    assert result["commitId"]


@pytest.mark.parametrize("error", [ZeroDivisionError("secret words"), KeyError("x"), RecursionError()])
def test_a_bug_becomes_an_error_result_not_a_traceback(error: Exception) -> None:
    world = World()
    world.kb = FailingAt(world.kb, "latest", error)

    run(world)

    assert world.result(TASK)["errorCode"] == "INTERNAL"
    assert "secret words" not in json.dumps(world.result(TASK))


def test_a_damaged_artefact_is_made_anew() -> None:
    world = World()
    run(world)
    world.folder(TASK).files["outcome.json"] = b'{"half'
    del world.folder(TASK).files["result.json"]

    run(world)

    assert world.result(TASK)["success"]
    assert len(world.model.calls) == 2
    assert len(world.writer.repos[REPO].history) == 1


def test_a_result_that_cannot_be_delivered_is_told_and_kept() -> None:
    world = World()
    world.sink = FailingAt(world.sink, "deliver", *[TransientError(Code.RESULT_DIR_MISSING, en="gone", zh="不在")] * 9)

    with pytest.raises(JobError) as caught:
        run(world)

    assert caught.value.code == "RESULT_DIR_MISSING"
    assert world.result(TASK)["success"]


def test_a_refused_payload_is_a_result_too() -> None:
    world = World(repo_fault=PermanentError(Code.GITEA_NOT_ALLOWED, en="not ours", zh="不是本服务的 Gitea"))

    run(world)

    assert (world.result(TASK)["errorCode"], world.result(TASK)["errors"]) == (
        "GITEA_NOT_ALLOWED",
        ["不是本服务的 Gitea"],
    )


def test_the_guard_is_asked_before_each_artefact() -> None:
    world = World()
    folder = world.folder(TASK)
    folder.write("payload.json", json.dumps(payload()).encode())

    def fenced() -> None:
        raise FencedError

    job = Job(TASK, folder, world.ports, deadline=world.clock.monotonic() + 60, guard=fenced)
    with pytest.raises(FencedError):
        run_inline(query, job, max_attempts=1)
    assert set(folder.files) == {"payload.json", "events.jsonl"}
