"""Replaying, cancelling and dead letters: effects stay keyed by taskId, every action is in the job's journal."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from tasks.errors import Code, PermanentError, TransientError
from tasks.ports import Claim, ModelCall
from tasks.restore import answered_record
from tests.fakes import REPO, FailingAt, World, payload
from tests.fakes_kb_reader import FakeKbReader
from tests.fakes_model import FakeModel
from worker.ops.control import cancel, gate_of
from worker.ops.desk import Desk
from worker.ops.failure import OperationFailedError
from worker.ops.replay import ReplayOrder, ask_for_yes, replay

TASK = "query-c1-m1"
ARTEFACTS = ("context.json", "page-selection.json", "evidence.json", "answer.json", "outcome.json", "receipt.json")
AGAIN = ReplayOrder()


def desk_of(world: World) -> Desk:
    return Desk(world.records, world.ports, world.wake, "operator:ann@desk")


def answered() -> World:
    world = World()
    world.accept(payload())
    world.settle()
    assert world.record(TASK).state == "done"
    return world


def failed_at_select() -> World:
    refusal = PermanentError(Code.MODEL_AUTH, en="the key was refused", zh="密钥被拒绝")
    world = World()
    world.model = FailingAt(world.model, "complete", refusal)
    world.accept(payload())
    world.settle()
    assert world.result(TASK)["errorCode"] == "MODEL_AUTH"
    return world


def groundless(call: ModelCall) -> str:
    """Claims that the knowledge base suffices, and names no page."""
    if call.schema_name == "kb_answer":
        return json.dumps({"answer": "是。", "knowledgeSufficient": True, "sources": []}, ensure_ascii=False)
    return json.dumps({"selectedPages": [{"path": "concepts/lease.md"}]})


# ---------------------------------------------------------------- replay


def test_a_failed_job_goes_on_where_it_failed_and_its_error_result_is_replaced() -> None:
    world = failed_at_select()
    context = world.folder(TASK).files["context.json"]

    told = replay(desk_of(world), TASK, AGAIN)
    world.settle()

    assert (told.outcome, told.stage, told.moved) == ("replayed", "select", ("result.json",))
    assert world.result(TASK)["success"]
    assert world.folder(TASK).files["context.json"] == context
    assert json.loads(world.folder(TASK).files["attempts/0/result.json"])["errorCode"] == "MODEL_AUTH"
    assert [json.loads(body)["success"] for body in world.sink.delivered[f"results/{TASK}.json"]] == [False, True]


def test_the_journal_names_the_operator_and_the_new_generation() -> None:
    world = failed_at_select()

    replay(desk_of(world), TASK, AGAIN)

    line = world.folder(TASK).journal("events.jsonl")[-1]
    assert (line["event"], line["actor"], line["stage"], line["generation"]) == (
        "replay", "operator:ann@desk", "select", 1,
    )  # fmt: skip
    assert line["reason"] == "was failed MODEL_AUTH"


def test_a_published_success_keeps_its_bytes_and_its_one_commit() -> None:
    world = answered()
    published = world.folder(TASK).files["result.json"]

    told = replay(desk_of(world), TASK, AGAIN)
    world.settle()

    assert (told.stage, told.moved) == ("prepare", ARTEFACTS)
    assert world.folder(TASK).files["result.json"] == published
    assert world.sink.delivered[f"results/{TASK}.json"] == [published, published]
    assert len(world.writer.repos[REPO].history) == 1
    assert {f"attempts/0/{name}" for name in ARTEFACTS} <= set(world.folder(TASK).files)


def test_a_second_publication_needs_the_flag_and_still_commits_once() -> None:
    world = answered()
    commit = world.result(TASK)["commitId"]

    told = replay(desk_of(world), TASK, ReplayOrder(publish_again=True))
    world.settle()

    assert "result.json" in told.moved
    assert world.result(TASK)["success"]
    assert world.result(TASK)["commitId"] == commit
    assert len(world.writer.repos[REPO].history) == 1
    assert "attempts/0/result.json" in world.folder(TASK).files


def test_from_a_stage_moves_what_comes_from_there_on() -> None:
    world = answered()

    told = replay(desk_of(world), TASK, ReplayOrder(from_stage="answer"))

    assert told.moved == ("answer.json", "outcome.json", "receipt.json")
    assert world.record(TASK).stage == "answer"


def test_a_commit_that_is_gone_is_replayed_from_the_beginning() -> None:
    world = World()
    kb = FakeKbReader()
    kb.publish(REPO, {"concepts/lease.md": "# 租约\n\n租约到期之后，协调器会再次唤醒任务。\n"})
    world.kb = FailingAt(kb, "at", PermanentError(Code.COMMIT_GONE, en="gone", zh="已不存在"))
    world.accept(payload())
    world.settle()
    assert world.record(TASK).failed_stage == "select"

    assert replay(desk_of(world), TASK, AGAIN).stage == "prepare"


def test_a_success_that_could_not_be_delivered_is_only_delivered() -> None:
    world = World()
    world.accept(payload())
    for _ in range(5):
        world.step()
    world.sink.forbidden.add(f"results/{TASK}.json")
    world.settle()
    assert (world.record(TASK).state, world.record(TASK).code) == ("failed", "PATH_NOT_ALLOWED")
    world.sink.forbidden.clear()
    calls = len(world.model.calls)

    told = replay(desk_of(world), TASK, AGAIN)
    world.settle()

    assert (told.stage, told.moved) == ("publish", ())
    assert len(world.sink.delivered[f"results/{TASK}.json"]) == 1
    assert (world.record(TASK).state, len(world.model.calls)) == ("done", calls)


def test_a_reply_that_broke_a_rule_is_asked_for_again_not_judged_again() -> None:
    world = World()
    good = world.model
    world.model = FakeModel(by_call=groundless)
    world.accept(payload())
    world.settle()
    assert (world.record(TASK).failed_stage, world.record(TASK).code) == ("apply", "SOURCES_REQUIRED")
    world.model = good

    told = replay(desk_of(world), TASK, AGAIN)
    world.settle()

    assert (told.stage, told.moved) == ("answer", ("answer.json", "result.json"))
    assert world.result(TASK)["success"]


def test_a_default_stage_whose_input_is_lost_begins_earlier_a_wished_one_is_refused() -> None:
    world = failed_at_select()
    del world.folder(TASK).files["context.json"]

    refused = replay(desk_of(world), TASK, ReplayOrder(from_stage="select"))
    told = replay(desk_of(world), TASK, ReplayOrder(dry_run=True))

    assert (refused.outcome, refused.reason) == ("refused", "what select needs is missing: replay from prepare")
    assert told.stage == "prepare"


def test_a_dry_run_changes_nothing() -> None:
    world = failed_at_select()
    files, record = dict(world.folder(TASK).files), world.record(TASK)

    told = replay(desk_of(world), TASK, ReplayOrder(dry_run=True))

    assert told.outcome == "would_replay"
    assert (world.folder(TASK).files, world.record(TASK), list(world.woken)) == (files, record, [])


def test_the_old_generations_worker_stays_fenced() -> None:
    world = World()
    world.accept(payload())
    old = world.records.claim(TASK, "prepare", "w1")
    assert isinstance(old, Claim)
    world.clock.sleep(61.0)
    cancel(desk_of(world), TASK)
    world.settle()
    replay(desk_of(world), TASK, AGAIN)

    assert not world.records.checkpoint(old, "select")
    assert not world.records.renew(old)


def test_a_new_attempt_gets_the_time_it_is_given() -> None:
    world = failed_at_select()
    replay(desk_of(world), TASK, ReplayOrder(deadline_s=60.0))
    assert world.record(TASK).deadline == world.clock.now() + 60.0


@pytest.mark.parametrize("crash", ["archive", "replay"])
def test_a_replay_that_died_half_way_is_mended_by_replaying_again(crash: str) -> None:
    world = failed_at_select()
    desk = desk_of(world)
    died = TransientError(Code.RESULT_DIR_MISSING, en="died here", zh="中断")
    if crash == "archive":
        world.folders.folders[TASK] = FailingAt(world.folder(TASK), "archive", died)  # type: ignore[assignment]
    else:
        records = world.records
        control = FailingAt(records, "replay", died)
        dying = SimpleNamespace(control=control, archive=records, views=records, sweep=records)
        desk = Desk(dying, world.ports, world.wake, "operator:ann@desk")
    with pytest.raises(TransientError):
        replay(desk, TASK, AGAIN)

    told = replay(desk_of(world), TASK, AGAIN)
    world.settle()

    assert told.outcome == "replayed"
    assert world.result(TASK)["success"]
    assert "attempts/0/result.json" in world.folder(TASK).files


def test_two_operators_at_once_do_not_move_away_what_the_first_one_started() -> None:
    world = failed_at_select()
    world.records.lock(f"replay:{TASK}", "operator:bob@desk", 60.0)
    told = replay(desk_of(world), TASK, AGAIN)
    assert (told.outcome, told.reason) == ("refused", "somebody else is replaying it right now")
    assert "result.json" in world.folder(TASK).files


def test_what_cannot_be_replayed_says_why() -> None:
    world = World()
    world.accept(payload())
    desk = desk_of(world)
    assert replay(desk, TASK, AGAIN).reason.startswith("it is still queued at prepare: `kbw show` tells")
    assert "kbw recover" in replay(desk, "query-9-9", AGAIN).reason
    world.settle()
    assert "no stage 'nowhere'" in replay(desk, TASK, ReplayOrder(from_stage="nowhere")).reason
    del world.folder(TASK).files["payload.json"]
    assert "send the payload again" in replay(desk, TASK, AGAIN).reason
    world.records.prune(0.0)
    assert "pruned" in replay(desk, TASK, AGAIN).reason


def test_a_job_that_another_system_answered_is_run_and_its_answer_replaced_once() -> None:
    world = World()
    foreign = b'{"success": true, "taskId": "query-c1-m1", "answer": "theirs"}'
    world.folder(TASK).files |= {"payload.json": json.dumps(payload()).encode(), "result.json": foreign}
    record = answered_record(payload(), json.loads(foreign), source="foreign:/shared/payloads/x.json")
    world.records.restore(record, deadline_s=900.0)

    told = replay(desk_of(world), TASK, AGAIN)
    world.settle()
    ours = world.folder(TASK).files["result.json"]

    assert (told.outcome, told.stage, told.moved) == ("replayed", "prepare", ("result.json",))
    assert world.folder(TASK).files["attempts/0/result.json"] == foreign
    assert world.result(TASK)["success"]
    assert "result.json" not in replay(desk_of(world), TASK, AGAIN).moved
    assert world.folder(TASK).files["result.json"] == ours


def test_a_filter_that_takes_in_many_wants_a_yes() -> None:
    ask_for_yes(20, yes=False)
    ask_for_yes(21, yes=True)
    with pytest.raises(OperationFailedError, match="21 jobs match: add --yes"):
        ask_for_yes(21, yes=False)


# ---------------------------------------------------------------- cancel


def test_a_cancelled_job_gets_its_error_result_and_a_line_in_its_journal() -> None:
    world = World()
    world.accept(payload())
    assert cancel(desk_of(world), TASK).outcome == "requested"
    world.settle()
    assert world.result(TASK)["errorCode"] == "CANCELLED"
    assert [line["actor"] for line in world.folder(TASK).journal("events.jsonl") if line["event"] == "cancel"] == [
        "operator:ann@desk"
    ]


def test_a_job_that_is_over_or_unknown_is_not_cancelled() -> None:
    world = answered()
    assert cancel(desk_of(world), TASK).outcome == "over"
    assert cancel(desk_of(world), "query-9-9").outcome == "unknown"
    assert "cancel" not in str(world.folder(TASK).journal("events.jsonl"))


# ---------------------------------------------------------------- gates


def test_gates_are_named_after_queues_and_endpoints_that_exist() -> None:
    assert gate_of("kbw.llm", "", []) == "queue:kbw.llm"
    assert gate_of("", "https://llm.example/v1/", ["https://llm.example/v1"]) == "endpoint:https://llm.example/v1"
