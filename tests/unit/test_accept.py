"""One way in: unknown is recorded, known with equal content is the same job, other content touches nothing."""

from __future__ import annotations

import json

import pytest

from tasks.accept import accept, deliver_again
from tasks.contract.payload import read_payload
from tasks.contract.shape import JsonObject
from tasks.errors import PermanentError, StoreUnavailableError, TransientError
from tests.fakes import FailingAt, World, payload
from worker.masking import SecretMask

TASK = "query-c1-m1"


def finished(world: World) -> World:
    world.accept(payload())
    world.settle()
    return world


def test_a_new_job_is_on_disk_recorded_noted_and_woken() -> None:
    world = World()

    accepted = world.accept(payload(), source="file:/x")

    assert accepted.kind == "new"
    assert json.loads(world.folder(TASK).files["payload.json"]) == payload()
    assert [(event["event"], event["actor"]) for event in world.folder(TASK).journal("events.jsonl")] == [
        ("accept", "file:/x")
    ]
    assert [call[1:] for call in world.woken] == [("prepare", TASK)]
    assert (world.record(TASK).lane, world.record(TASK).deadline) == ("c1", world.clock.now() + 900)


def test_the_payload_is_on_disk_before_the_record_is_made() -> None:
    world = World()
    world.records = FailingAt(world.records, "accept", StoreUnavailableError("away"))
    world.records.store = world.records

    with pytest.raises(StoreUnavailableError):
        world.accept(payload())
    assert "payload.json" in world.folder(TASK).files


def test_the_same_content_again_is_the_same_job_and_wakes_it() -> None:
    world = World()
    world.accept(payload())
    world.woken.clear()

    assert world.accept(payload(deadlineSeconds=60)).kind == "same"
    assert [call[1:] for call in world.woken] == [("prepare", TASK)]
    assert json.loads(world.folder(TASK).files["payload.json"]) == payload()


def test_a_job_that_is_over_delivers_the_same_bytes_again_also_elsewhere() -> None:
    world = finished(World())

    world.accept(payload())
    world.accept(payload(resultFile="results/elsewhere.json"))

    first, second = world.sink.delivered[f"results/{TASK}.json"]
    assert first == second == world.sink.delivered["results/elsewhere.json"][0]
    assert not world.woken


def test_other_content_is_a_conflict_and_touches_nothing() -> None:
    world = finished(World())
    before = dict(world.folder(TASK).files)

    assert world.accept(payload(question="完全不同的问题")).kind == "conflict"
    assert world.folder(TASK).files == before
    assert len(world.sink.delivered[f"results/{TASK}.json"]) == 1


def test_what_is_no_payload_leaves_no_trace() -> None:
    world = World()

    with pytest.raises(PermanentError):
        world.accept(payload(conversationId="other"))
    assert world.folders.folders == {}


# ---------------------------------------------------------------- crashes in between


def test_a_payload_left_by_a_writer_that_died_before_its_record_is_replaced() -> None:
    world = World()
    world.folder(TASK).write("payload.json", json.dumps(payload(question="从未被受理")).encode())

    assert world.accept(payload()).kind == "new"
    assert json.loads(world.folder(TASK).files["payload.json"]) == payload()


def test_a_crash_between_record_and_payload_is_mended_by_the_repeat() -> None:
    world = World()
    folder = world.folder(TASK)
    folder.write("payload.json", json.dumps(payload(question="从未被受理")).encode())
    folder.full.add("payload.json")
    with pytest.raises(TransientError):
        world.accept(payload())
    folder.full.clear()

    assert world.accept(payload()).kind == "same"
    assert json.loads(folder.files["payload.json"]) == payload()


@pytest.mark.parametrize("garbage", [b"{", b"[]", b"\xff", b"null"], ids=range(4))
def test_a_file_that_is_no_payload_is_replaced(garbage: bytes) -> None:
    world = World()
    world.folder(TASK).write("payload.json", garbage)

    world.accept(payload())
    world.settle()

    assert world.result(TASK)["success"]


def test_a_crash_before_the_wake_up_call_is_mended_by_the_sweep() -> None:
    world = World()
    world.accept(payload())
    world.woken.clear()

    world.settle(patience_s=10.0)

    assert world.result(TASK)["success"]


# ---------------------------------------------------------------- Redis lost everything


def forgotten(world: World) -> World:
    """The same folders, an empty record."""
    return World(clock=world.clock, folders=world.folders, sink=world.sink)


def test_a_job_with_a_result_is_restored_as_done_and_not_run_again() -> None:
    first = finished(World())
    world = forgotten(first)

    assert world.accept(payload()).kind == "same"
    assert world.record(TASK).state == "done"
    assert world.record(TASK).commit_id == world.result(TASK)["commitId"]
    assert len(world.sink.delivered[f"results/{TASK}.json"]) == 2
    assert world.model.calls == []


def test_other_content_for_a_restored_job_is_still_a_conflict() -> None:
    world = forgotten(finished(World()))

    assert world.accept(payload(question="完全不同的问题")).kind == "conflict"
    assert world.record(TASK).state == "done"


def test_other_content_never_takes_over_the_artefacts_of_a_job_at_work() -> None:
    first = World()
    first.accept(payload())
    first.step()  # prepare
    world = forgotten(first)

    assert world.accept(payload(question="完全不同的问题")).kind == "conflict"
    world.settle(patience_s=5.0)
    assert json.loads(world.folder(TASK).files["outcome.json"])["taskId"] == TASK
    assert json.loads(world.folder(TASK).files["context.json"])["question"] == payload()["question"]
    assert world.result(TASK)["success"]


def test_a_damaged_result_does_not_stop_the_job() -> None:
    world = World()
    world.folder(TASK).write("payload.json", json.dumps(payload()).encode())
    world.folder(TASK).write("result.json", b'{"taskId": "somebody-else"}')

    assert world.accept(payload()).kind == "new"


# ---------------------------------------------------------------- secrets and odd text


def hiding(world: World) -> World:
    mask = SecretMask(["tok-3f9a17c2"])
    intake = world.intake
    world.accept = lambda document, source="test": accept(  # type: ignore[method-assign]
        document, source=source, intake=type(intake)(**{**vars(intake), "hide": mask.value})
    )
    return world


def test_a_secret_in_the_payload_is_neither_kept_nor_a_conflict_with_itself() -> None:
    document = payload(question="我的令牌是 tok-3f9a17c2，为什么被拒绝？")
    world = hiding(World())

    assert world.accept(document).kind == "new"
    assert world.accept(document).kind == "same"
    assert b"tok-3f9a17c2" not in b"".join(world.folder(TASK).files.values())
    world.settle()
    again = hiding(forgotten(world))
    assert again.accept(document).kind == "same"


def test_lone_surrogates_and_numbers_beyond_json_do_not_stop_a_job() -> None:
    world = World()
    odd: JsonObject = payload(question="半个字符 \ud800 ？", future=[float("inf")], resultFile="results/\udfff.json")

    world.accept(odd)
    world.settle()

    assert world.result(TASK)["success"]
    assert world.accept(odd).kind == "same"


def test_a_document_nested_without_end_is_refused() -> None:
    deep: object = 1
    for _ in range(10_000):
        deep = [deep]

    with pytest.raises(PermanentError):
        World().accept(payload(future=deep))


def test_delivering_again_before_there_is_a_result_does_nothing() -> None:
    world = World()

    deliver_again(read_payload(payload()), world.folder(TASK), world.sink)

    assert world.sink.delivered == {}
