"""Losing Redis and forgetting on purpose: what the folders tell, and what a late repeat meets."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tasks.errors import Code, PermanentError
from tasks.registry import pipeline_of
from tests.fakes import REPO, FailingAt, World, payload
from tests.fakes_job_store import FakeJobRecords
from worker.ops.control import cancel
from worker.ops.desk import Desk
from worker.ops.replay import ReplayOrder, replay
from worker.upkeep import FolderWatch, Recovered, Upkeep, prune, recover

TASK = "query-c1-m1"
STAGES = ("prepare", "select", "fetch", "answer", "apply", "commit", "publish")


def upkeep_of(world: World, rejected: Path = Path("/nowhere"), trim: Callable[[float], int] = lambda _s: 0) -> Upkeep:
    return Upkeep(world.records, world.ports, pipeline_of, rejected, trim, "reconciler")


def lose_redis(world: World) -> None:
    world.records = FakeJobRecords(now=world.clock.now)
    world.woken.clear()


# ---------------------------------------------------------------- recovery


@pytest.mark.parametrize("steps", range(6))
def test_a_job_goes_on_where_its_folder_says_it_stood(steps: int) -> None:
    world = World()
    world.accept(payload())
    for _ in range(steps):
        world.step()
    stood = world.record(TASK).stage
    calls = len(world.model.calls)
    lose_redis(world)

    assert recover(upkeep_of(world)) == [Recovered(TASK, "queued", stood)]
    world.settle(patience_s=5.0)

    assert world.result(TASK)["success"]
    assert len(world.model.calls) == 2, f"{calls} calls were made before"
    assert len(world.writer.repos[REPO].history) == 1


def test_a_commit_whose_receipt_was_lost_is_looked_up_not_made_again() -> None:
    world = World()
    world.accept(payload())
    while world.record(TASK).stage != "publish":
        world.step()
    commit = json.loads(world.folder(TASK).files.pop("receipt.json"))["commitId"]
    lose_redis(world)

    (told,) = recover(upkeep_of(world))
    assert told.stage == "commit"
    assert Desk(world.records, world.ports, world.wake, "x").records.control.cancel(TASK) == "too_late"
    world.settle(patience_s=5.0)

    assert world.result(TASK)["commitId"] == commit
    assert len(world.writer.repos[REPO].history) == 1


def test_an_answered_job_is_over_and_is_not_run_again() -> None:
    world = World()
    world.accept(payload())
    world.settle()
    published = world.folder(TASK).files["result.json"]
    lose_redis(world)

    assert recover(upkeep_of(world)) == [Recovered(TASK, "done", "publish")]
    world.settle(patience_s=5.0)

    assert (world.record(TASK).state, world.folder(TASK).files["result.json"]) == ("done", published)
    assert len(world.sink.delivered[f"results/{TASK}.json"]) == 1


@pytest.mark.parametrize("code", ["", "MODEL_AUTH", "CANCELLED"])
def test_a_result_that_nobody_has_yet_is_still_delivered(code: str) -> None:
    world = World()
    place = f"results/{TASK}.json"
    if code == "MODEL_AUTH":
        fault = PermanentError(Code.MODEL_AUTH, en="the key was refused", zh="密钥被拒绝")
        world.model = FailingAt(world.model, "complete", fault)
    world.accept(payload())
    world.step()
    world.sink.missing.add(place)
    if code == "CANCELLED":
        assert cancel(Desk(world.records, world.ports, world.wake, "x"), TASK).outcome == "requested"
    world.settle(patience_s=5.0)
    fixed = world.folder(TASK).files["result.json"]
    assert not world.sink.delivered, "the share is away"
    lose_redis(world)

    assert recover(upkeep_of(world)) == [Recovered(TASK, "queued", "publish")]
    world.sink.missing.clear()
    world.settle(patience_s=60.0)

    assert world.sink.delivered[place] == [fixed]
    wanted = {"": "done", "MODEL_AUTH": "failed", "CANCELLED": "cancelled"}[code]
    assert (world.record(TASK).state, world.record(TASK).code) == (wanted, code)
    lose_redis(world)
    assert recover(upkeep_of(world)) == [Recovered(TASK, wanted, "publish")], "delivered now: it is over"


def test_where_a_repeat_wants_the_result_survives_the_loss_too() -> None:
    world = World()
    for place in (f"results/{TASK}.json", "results/second.json", "results/second.json"):
        world.accept(payload(resultFile=place))
    world.step()
    lose_redis(world)
    recover(upkeep_of(world))
    world.settle(patience_s=5.0)

    first, second = (world.sink.delivered[f"results/{name}.json"] for name in (TASK, "second"))
    assert first == second
    assert len(second) == 1


@pytest.mark.parametrize("losses", [1, 2])
def test_a_repeat_that_is_faster_than_recovery_gets_the_result_at_both_places(losses: int) -> None:
    world = World()
    world.accept(payload())
    lose_redis(world)
    world.accept(payload(resultFile="results/second.json"))
    if losses == 2:
        lose_redis(world)
        recover(upkeep_of(world))
    world.settle(patience_s=5.0)

    assert world.sink.delivered["results/second.json"] == world.sink.delivered[f"results/{TASK}.json"]


def test_a_failed_job_is_replayed_where_it_failed_although_redis_was_lost_since() -> None:
    world = World()
    world.model = FailingAt(
        world.model, "complete", PermanentError(Code.MODEL_AUTH, en="the key was refused", zh="密钥被拒绝")
    )
    world.accept(payload())
    world.settle()
    before = world.record(TASK)
    lose_redis(world)
    recover(upkeep_of(world))

    restored = world.record(TASK)
    assert (restored.state, restored.code, restored.failed_stage) == ("failed", "MODEL_AUTH", before.failed_stage)
    assert (restored.failed_stage, restored.error) == ("select", before.error)
    told = replay(Desk(world.records, world.ports, world.wake, "operator:ann@desk"), TASK, ReplayOrder())
    assert (told.outcome, told.stage) == ("replayed", "select")


def test_a_job_past_its_deadline_left_no_line_but_stood_where_it_stood() -> None:
    world = World()
    world.accept(payload(deadlineSeconds=60))
    world.step()
    world.clock.sleep(61.0)
    world.settle()
    before = world.record(TASK)
    assert (before.code, before.failed_stage) == ("DEADLINE", "select")
    lose_redis(world)
    recover(upkeep_of(world))
    assert (world.record(TASK).code, world.record(TASK).failed_stage) == ("DEADLINE", "select")


def test_jobs_of_one_conversation_come_back_in_their_old_order() -> None:
    world = World()
    for number in (9, 10, 2):  # message 2 was asked last
        world.accept(payload(f"x{number}", taskId=f"query-c-{number}", conversationId="c", messageId=str(number)))
        world.clock.sleep(2.0)
    lose_redis(world)

    told = recover(upkeep_of(world))

    assert [found.task_id for found in told] == ["query-c-9", "query-c-10", "query-c-2"]
    assert world.records.claim("query-c-10", "prepare", "w").reason == "order"


def test_within_one_second_the_messages_number_decides() -> None:
    world = World()
    for number in (10, 9):
        world.accept(payload(f"x{number}", taskId=f"query-c-{number}", conversationId="c", messageId=str(number)))
    lose_redis(world)
    assert [found.task_id for found in recover(upkeep_of(world))] == ["query-c-9", "query-c-10"]


def test_a_cancellation_outlives_the_loss() -> None:
    world = World()
    world.accept(payload())
    world.step()
    cancel(Desk(world.records, world.ports, world.wake, "operator:ann@desk"), TASK)
    lose_redis(world)

    recover(upkeep_of(world))
    world.settle(patience_s=5.0)

    assert world.result(TASK)["errorCode"] == "CANCELLED"


def test_a_replay_under_way_is_still_the_same_generation_and_old_workers_stay_fenced() -> None:
    world = World()
    world.accept(payload())
    world.settle()
    epoch = world.record(TASK).epoch
    replay(Desk(world.records, world.ports, world.wake, "operator:ann@desk"), TASK, ReplayOrder(publish_again=True))
    world.step()
    lose_redis(world)

    recover(upkeep_of(world))

    record = world.record(TASK)
    assert (record.state, record.stage, record.generation) == ("queued", "select", 1)
    assert record.epoch > epoch + 1


def test_the_senders_trace_comes_back_with_the_job() -> None:
    trace = f"00-{'a' * 32}-{'b' * 16}-01"
    world = World()
    world.accept(payload(traceparent=trace))
    world.step()
    lose_redis(world)
    recover(upkeep_of(world))
    assert world.record(TASK).traceparent == trace


def test_a_dry_run_tells_and_changes_nothing() -> None:
    world = World()
    world.accept(payload())
    lose_redis(world)
    assert recover(upkeep_of(world), dry_run=True) == [Recovered(TASK, "queued", "prepare")]
    assert world.records.get(TASK) is None


def test_known_jobs_and_unreadable_folders_are_left_alone() -> None:
    world = World()
    world.accept(payload())
    world.folder("query-torn-1").files["payload.json"] = b'{"taskId": "query-t'
    before = world.record(TASK)
    assert recover(upkeep_of(world)) == [Recovered("query-torn-1", "", "")]
    assert world.record(TASK) == before


def test_what_a_person_runs_apart_from_the_fleet_is_not_taken_up() -> None:
    world = World()
    world.accept(payload(), source="run:payload.json")
    world.accept(payload(2))
    world.folder("query-c2-m2").files.pop("events.jsonl")  # it is being accepted at this moment
    lose_redis(world)
    assert FolderWatch(upkeep_of(world)).look() == 0
    assert [told.task_id for told in recover(upkeep_of(world))] == ["query-c2-m2"]


def test_the_watch_finds_jobs_that_a_restarted_redis_has_lost_again_and_again() -> None:
    world = World()
    world.accept(payload())
    watch = FolderWatch(upkeep_of(world))
    assert watch.look() == 0
    for _ in range(2):
        world.records.jobs.clear()
        assert watch.look() == 1
        assert world.record(TASK).state == "queued"


# ---------------------------------------------------------------- pruning


def test_what_ended_long_ago_is_forgotten_but_a_late_repeat_is_known() -> None:
    world = World()
    world.accept(payload())
    world.settle()
    world.clock.sleep(100.0)
    world.accept(payload(2))
    world.settle()

    pruned = prune(upkeep_of(world), 50.0)

    assert (pruned.jobs, pruned.folders) == ((TASK,), 1)
    assert world.folders.task_ids() == ["query-c2-m2"]
    calls = len(world.model.calls)
    assert world.accept(payload()).kind == "same"
    assert world.accept(payload(question="另一个问题？")).kind == "conflict"
    world.settle()
    assert len(world.model.calls) == calls
    assert prune(upkeep_of(world), 50.0).folders == 1, "the folder that the late repeat opened"


def test_a_prune_that_died_before_the_folder_went_is_finished_by_the_next() -> None:
    world = World()
    world.accept(payload())
    world.settle()
    world.records.prune(0.0)
    assert recover(upkeep_of(world)) == []
    assert prune(upkeep_of(world), 1e9).folders == 1
    assert world.folders.task_ids() == []


def test_open_jobs_are_never_pruned() -> None:
    world = World()
    world.accept(payload())
    world.clock.sleep(1e6)
    assert prune(upkeep_of(world), 0.0).jobs == ()
    assert world.folders.task_ids() == [TASK]


def test_old_reports_go_and_streams_are_cut(tmp_path: Path) -> None:
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    for report in (old, new):
        report.write_text("{}")
    os.utime(old, (1, 1))
    asked: list[float] = []

    def trim(older_than_s: float) -> int:
        asked.append(older_than_s)
        return 7

    pruned = prune(upkeep_of(World(), tmp_path, trim), 3_600.0)

    assert (pruned.reports, pruned.entries, asked) == (1, 7, [3_600.0])
    assert not old.exists()
    assert new.exists()
