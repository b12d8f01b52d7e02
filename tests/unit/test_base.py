"""How a stage runs in the fleet: whatever goes wrong, a job ends in one result, and a fenced worker does nothing."""

from __future__ import annotations

import json
from collections import deque

import pytest

from tasks.base import take
from tasks.errors import Code, PermanentError, StoreUnavailableError, TransientError
from tasks.ports import Claim
from tasks.query import query
from tests.fakes import REPO, FailingAt, World, payload
from tests.fakes_job_store import FakeJobRecords
from tests.fakes_kb_reader import FakeKbReader
from tests.fakes_kb_writer import MemoryKbWriter
from tests.fakes_model import FakeModel, StillClock

TASK = "query-c1-m1"


def unreachable(retry_after: float | None = None) -> TransientError:
    return TransientError(
        Code.KB_UNREACHABLE, en="git.example is away", zh="知识库 git.example 无法连接", retry_after=retry_after
    )


def forbidden() -> PermanentError:
    return PermanentError(Code.KB_AUTH, en="token refused", zh="令牌被拒绝")


def failing_kb(*errors: Exception) -> FailingAt:
    kb = FakeKbReader()
    kb.publish(REPO, {"concepts/lease.md": "# 租约\n\n租约到期之后，协调器会再次唤醒任务。\n"})
    return FailingAt(kb, "latest", *errors)


# ---------------------------------------------------------------- claims and leases


def test_a_doubled_wake_up_call_does_nothing_twice() -> None:
    world = World()
    world.accept(payload())
    world.woken.extend(list(world.woken) * 2)

    world.settle()

    assert len(world.model.calls) == 2  # select and answer
    assert len(world.sink.delivered[f"results/{TASK}.json"]) == 1
    assert len(world.writer.repos[REPO].history) == 1


def test_a_worker_that_lost_its_lease_writes_no_artefact() -> None:
    world = World()
    world.accept(payload())
    world.step()  # prepare
    willing = world.model

    class Sleepy(FakeModel):
        """While this call lasts, the lease runs out and another worker takes the stage."""

        def complete(self, call):  # type: ignore[no-untyped-def]
            world.clock.sleep(120.0)
            assert isinstance(world.records.claim(TASK, "select", "w2"), Claim)
            return willing.complete(call)

    world.model = Sleepy()
    world.step()

    assert "page-selection.json" not in world.folder(TASK).files
    assert world.events(TASK)[-1] == "select:fenced"
    assert not world.woken
    assert world.record(TASK).worker == "w2"


def test_a_job_cancelled_while_the_model_thinks_is_told_at_once() -> None:
    world = World()
    world.accept(payload())
    world.step()
    willing = world.model

    class Slow(FakeModel):
        def complete(self, call):  # type: ignore[no-untyped-def]
            world.clock.sleep(5.0)
            world.records.cancel(TASK)
            return willing.complete(call)

    world.model = Slow()
    world.settle()

    assert world.result(TASK)["errorCode"] == "CANCELLED"
    assert world.record(TASK).state == "cancelled"
    assert "page-selection.json" not in world.folder(TASK).files


def test_a_record_that_cannot_be_reached_is_nobodys_bug() -> None:
    world = World(kb=failing_kb(StoreUnavailableError("Redis is away")))
    world.accept(payload())

    world.step()

    assert world.events(TASK)[-1] == "prepare:start"
    assert world.record(TASK).state == "running"
    world.settle(patience_s=90.0)
    assert world.result(TASK)["success"]


def test_a_stage_whose_artefact_is_there_is_passed_over() -> None:
    world = World()
    world.accept(payload())
    world.step()  # prepare
    world.step()  # select
    calls = len(world.model.calls)
    world.records.replay(TASK, "select", force=True)
    world.woken.clear()
    world.wake(query, "select", TASK)

    world.step()

    assert len(world.model.calls) == calls
    assert world.record(TASK).stage == "fetch"


# ---------------------------------------------------------------- errors


def test_a_transient_error_parks_the_job_and_the_same_stage_is_tried_again() -> None:
    world = World(kb=failing_kb(unreachable()))
    world.accept(payload())

    world.settle()

    record = world.record(TASK)
    assert (record.state, record.stage, record.code) == ("parked", "prepare", "KB_UNREACHABLE")
    assert 1.0 <= record.parked_until - world.clock.now() <= 2.0
    world.settle(patience_s=5.0)
    assert world.result(TASK)["success"]


def test_what_the_other_side_asked_for_is_waited_for() -> None:
    world = World(kb=failing_kb(unreachable(retry_after=77.0)))
    world.accept(payload())

    world.settle()

    assert world.record(TASK).parked_until - world.clock.now() >= 77.0


def test_transient_errors_without_end_become_an_error_result_that_names_the_host() -> None:
    world = World(kb=failing_kb(*[unreachable()] * 99))
    world.accept(payload())

    world.settle(patience_s=800.0)

    result = world.result(TASK)
    assert (result["success"], result["errorCode"], result["retryable"]) == (False, "KB_UNREACHABLE", True)
    assert "git.example" in result["errors"][0]
    assert world.events(TASK, "start").count("prepare:start") == 6


def test_a_permanent_error_fails_at_once() -> None:
    world = World(kb=failing_kb(forbidden()))
    world.accept(payload())

    world.settle()

    result = world.result(TASK)
    assert (result["errorCode"], result["retryable"], result["errors"]) == ("KB_AUTH", False, ["令牌被拒绝"])
    assert json.loads(world.sink.delivered[f"results/{TASK}.json"][0]) == result
    assert world.record(TASK).failed_stage == "prepare"


def test_a_bug_is_tried_once_more() -> None:
    world = World(kb=failing_kb(ZeroDivisionError("a secret value")))
    world.accept(payload())

    world.settle(patience_s=10.0)

    assert world.result(TASK)["success"]


def test_a_bug_that_stays_ends_the_job_without_telling_its_text() -> None:
    world = World(kb=failing_kb(*[ZeroDivisionError("a secret value")] * 9))
    world.accept(payload())

    world.settle(patience_s=60.0)

    assert world.result(TASK)["errorCode"] == "INTERNAL"
    assert world.events(TASK, "start").count("prepare:start") == 2
    assert b"a secret value" not in b"".join(world.folder(TASK).files.values())


def test_a_bug_after_a_transient_error_still_gets_its_second_try() -> None:
    world = World(kb=failing_kb(unreachable(), ZeroDivisionError("oops")))
    world.accept(payload())

    world.settle(patience_s=60.0)

    assert world.result(TASK)["success"]


def test_a_job_past_its_deadline_may_be_sent_again() -> None:
    world = World(kb=failing_kb(*[unreachable(retry_after=500.0)] * 9))
    world.accept(payload(deadlineSeconds=30))

    world.settle(patience_s=60.0)

    result = world.result(TASK)
    assert (result["errorCode"], result["retryable"]) == ("DEADLINE", True)


def test_no_time_left_for_the_model_is_retryable_too() -> None:
    world = World()
    world.accept(payload(deadlineSeconds=10))
    world.step()
    world.clock.sleep(9.5)

    world.settle()

    assert (world.result(TASK)["errorCode"], world.result(TASK)["retryable"]) == ("DEADLINE", True)


@pytest.mark.parametrize("ahead_s", [10_800.0, -10_800.0])
def test_a_host_whose_clock_is_hours_off_keeps_a_jobs_time(ahead_s: float) -> None:
    clock = StillClock()
    world = World(clock=clock, records=FakeJobRecords(now=lambda: clock.now() - ahead_s))
    world.accept(payload(1))
    world.accept(payload(2, deadlineSeconds=10))
    world.step()
    world.step()
    clock.sleep(9.5)

    world.settle(patience_s=60.0)

    assert world.result(TASK)["success"]
    assert world.result("query-c2-m2")["errorCode"] == "DEADLINE"


@pytest.mark.parametrize("step", [86_400.0, -86_400.0])
def test_a_hosts_clock_that_is_set_in_mid_stage_keeps_a_jobs_time(step: float) -> None:
    clock = StillClock()
    clock.step = 3_600.0
    world = World(clock=clock, records=FakeJobRecords(now=clock.monotonic))
    world.accept(payload())
    taken = take(world.fleet, query, query.first, TASK)
    assert taken is not None
    clock.step += step
    assert taken[1].seconds_left == 900.0


def test_a_disk_that_is_full_keeps_the_job() -> None:
    world = World()
    world.accept(payload())
    world.folder(TASK).full.add("context.json")

    world.settle(patience_s=3.0)

    assert world.record(TASK).state == "parked"
    world.folder(TASK).full.clear()
    world.settle(patience_s=60.0)
    assert world.result(TASK)["success"]


def test_a_share_that_is_gone_costs_no_attempt() -> None:
    world = World()
    world.accept(payload())
    world.folders.gone = True

    world.settle(patience_s=200.0)

    assert (world.record(TASK).state, world.record(TASK).attempt) == ("parked", 0)
    world.folders.gone = False
    world.settle(patience_s=60.0)
    assert world.result(TASK)["success"]


def test_only_the_providers_own_faults_count_against_the_endpoint() -> None:
    away = TransientError(Code.MODEL_UNREACHABLE, en="HTTP 503", zh="模型暂时不可用")
    world = World()
    world.model.play(away)
    world.accept(payload())

    world.settle()

    assert [view.faults for view in world.records.endpoints()] == [1]
    world.settle(patience_s=60.0)
    assert world.result(TASK)["success"]
    assert [view.faults for view in world.records.endpoints()] == [0]


# ---------------------------------------------------------------- publish


def test_a_result_folder_that_is_missing_is_waited_for_however_long_it_takes() -> None:
    world = World()
    world.accept(payload())
    while world.woken[0][1] != "publish":
        world.step()
    world.sink.missing.add(f"results/{TASK}.json")

    world.settle(patience_s=3_000.0)

    assert (world.record(TASK).state, world.record(TASK).code) == ("parked", "RESULT_DIR_MISSING")
    assert world.record(TASK).attempt > 6
    kept = world.folder(TASK).files["result.json"]
    world.sink.missing.clear()
    world.settle(patience_s=60.0)
    assert world.sink.delivered[f"results/{TASK}.json"] == [kept]
    assert world.record(TASK).state == "done"


def test_a_result_folder_that_is_missing_from_the_start_costs_no_attempt() -> None:
    world = World()
    world.sink.missing.add(f"results/{TASK}.json")
    world.accept(payload())

    world.settle(patience_s=300.0)

    assert (world.record(TASK).state, world.record(TASK).stage) == ("parked", "prepare")
    assert world.model.calls == []
    world.sink.missing.clear()
    world.settle(patience_s=60.0)
    assert world.record(TASK).state == "done"


def test_a_result_path_that_is_forbidden_fails_the_job_before_it_costs_anything() -> None:
    world = World()
    world.sink.forbidden.add(f"results/{TASK}.json")
    world.accept(payload())

    world.settle()

    assert world.result(TASK)["errorCode"] == "PATH_NOT_ALLOWED"
    assert world.model.calls == []
    assert world.sink.delivered == {}
    assert world.record(TASK).state == "failed"


def test_a_damaged_outcome_still_ends_in_one_result() -> None:
    world = World()
    world.accept(payload())
    while world.woken[0][1] != "publish":
        world.step()
    world.folder(TASK).files["outcome.json"] = b"{"

    world.settle()

    result = json.loads(world.sink.delivered[f"results/{TASK}.json"][0])
    assert (result["success"], result["processedSources"]) == (False, ["team-kb"])
    assert world.record(TASK).state == "failed"


def test_a_lost_payload_still_ends_in_a_result_where_it_was_wanted() -> None:
    world = World()
    world.accept(payload())
    del world.folder(TASK).files["payload.json"]

    world.settle()

    result = json.loads(world.sink.delivered[f"results/{TASK}.json"][0])
    assert (result["success"], result["errorCode"]) == (False, "INTERNAL")
    assert world.record(TASK).state == "failed"


def test_a_bug_in_publish_itself_ends_in_an_error_result() -> None:
    world = World()
    world.sink = FailingAt(world.sink, "deliver", *[ZeroDivisionError("oops")] * 2)
    world.accept(payload())

    world.settle(patience_s=60.0)

    assert world.record(TASK).state in ("done", "failed")
    assert world.result(TASK)["taskId"] == TASK
    assert world.sink.calls >= 2


def test_one_bad_place_does_not_keep_the_result_from_the_others() -> None:
    world = World()
    world.accept(payload())
    world.accept(payload(resultFile="results/bad.json"))
    world.accept(payload(resultFile="results/good.json"))
    world.sink.forbidden.add("results/bad.json")

    world.settle()

    bodies = {path: sent[-1] for path, sent in world.sink.delivered.items()}
    assert set(bodies) == {f"results/{TASK}.json", "results/good.json"}
    assert len(set(bodies.values())) == 1
    assert world.record(TASK).state == "done"


def test_the_next_job_of_a_conversation_is_woken_when_the_one_before_it_is_over() -> None:
    world = World()
    world.accept(payload("1"))
    second = payload("2", conversationId="c1", taskId="query-c1-m2")
    world.accept(second)

    world.settle()

    assert world.result(TASK)["success"]
    assert world.result("query-c1-m2")["success"]
    order = [line for line in world.history if "publish" in line or line == "query-c1-m2 select"]
    assert order.index(f"{TASK} publish") < order.index("query-c1-m2 publish")


# ---------------------------------------------------------------- many jobs in one commit


def at_commit(world: World, numbers: range) -> list[str]:
    """Jobs that wait for the committer; their wake-up calls are held back."""
    for number in numbers:
        world.accept(payload(number))
    held = []
    while world.woken:
        call = world.woken.popleft()
        if call[1] == "commit":
            held.append(call)
        else:
            world.woken.appendleft(call)
            world.step()
    world.woken.extend(held)
    return [call[2] for call in held]


def test_all_jobs_that_wait_share_one_commit() -> None:
    world = World()
    tasks = at_commit(world, range(1, 6))
    world.writer = FailingAt(world.writer, "commit")

    world.settle()

    assert world.writer.calls == 1
    assert len({world.result(task)["commitId"] for task in tasks}) == 1
    assert len({world.result(task)["createdQaPath"] for task in tasks}) == 5


def test_a_writer_that_is_away_parks_all_of_them() -> None:
    world = World()
    tasks = at_commit(world, range(1, 4))
    world.writer = FailingAt(world.writer, "commit", unreachable())

    world.settle()

    assert {world.record(task).state for task in tasks} == {"parked"}
    world.settle(patience_s=20.0)
    assert all(world.result(task)["commitId"] for task in tasks)


def test_a_writer_that_refuses_for_good_lets_the_answers_go_out() -> None:
    world = World()
    tasks = at_commit(world, range(1, 4))
    world.writer = FailingAt(world.writer, "commit", forbidden())

    world.settle()

    for task in tasks:
        result = world.result(task)
        assert result["success"]
        assert (result["commitId"], result["createdQaPath"]) == ("", "")
        assert any("令牌被拒绝" in error for error in result["errors"])


def test_one_of_the_batch_without_a_lease_does_not_hold_the_others() -> None:
    world = World()
    tasks = at_commit(world, range(1, 4))
    stolen = tasks[1]

    class Slow(MemoryKbWriter):
        def commit(self, repo, changes):  # type: ignore[no-untyped-def]
            receipts = super().commit(repo, changes)
            if len(changes) == 3:  # the first time round
                world.clock.sleep(10.0)
                world.records.replay(stolen, "commit", force=True)
            return receipts

    world.writer = Slow(world.clock)
    world.settle(patience_s=10.0)

    assert all(world.result(task)["success"] for task in tasks)
    assert len(world.writer.repos[REPO].history) == 1


def test_a_job_that_comes_while_the_lock_is_held_is_seen_by_its_holder() -> None:
    world = World()
    first, second = at_commit(world, range(1, 3))
    world.woken = deque(call for call in world.woken if call[2] == first)
    real, unlocked = world.records, []

    class Late(FailingAt):
        """The second job comes, and is sent away, right before the lock is given back for the last time."""

        def unlock(self, name: str, owner: str) -> None:
            assert not real.lock(name, "w2", 60.0)
            unlocked.append(name)
            real.unlock(name, owner)

        def waiting(self, stage: str, limit: int) -> list[str]:
            return [task for task in real.waiting(stage, limit) if task == first or len(unlocked) >= 2]

    late = Late(real, "nothing")

    class Records:
        store = views = control = archive = real
        sweep = late

    world.records = Records()
    while world.woken:
        world.step()

    assert b"commitId" in world.folder(second).files["receipt.json"]


def test_jobs_of_another_repository_are_left_to_their_own_committer() -> None:
    world = World()
    at_commit(world, range(1, 2))
    world.kb.publish(
        __import__("tasks.ports", fromlist=["RepoRef"]).RepoRef("team", "other"),
        {"a.md": "# A\n\n租约到期之后会怎样\n"},
    )
    world.accept(payload(2, team={"kbRepo": "other"}))

    world.settle()

    assert {str(repo) for repo in world.writer.repos} == {"team/kb", "team/other"}
    assert all(len(repo.history) == 1 for repo in world.writer.repos.values())


@pytest.mark.parametrize("stage", ["prepare", "select", "fetch", "answer", "apply", "commit", "publish"])
def test_a_worker_that_dies_after_writing_its_artefact_costs_nothing(stage: str) -> None:
    """The checkpoint never arrives: the lease runs out, the sweep wakes the stage, the artefact is taken as it is."""
    world = World()
    world.accept(payload())
    real = world.records

    class Dying(FailingAt):
        def checkpoint(self, claim: Claim, next_stage: str) -> bool:
            return self._die(claim) or real.checkpoint(claim, next_stage)

        def finish(self, claim: Claim, **options: object) -> bool:
            return self._die(claim) or real.finish(claim, **options)

        def _die(self, claim: Claim) -> bool:
            if claim.stage == stage and not self.calls:
                self.calls = 1
                raise KeyboardInterrupt
            return False

    dying = Dying(real, "nothing")

    class Records:
        store = dying
        views = sweep = control = archive = real

    world.records = Records()
    with pytest.raises(KeyboardInterrupt):
        world.settle()
    world.records = real
    world.settle(patience_s=120.0)

    assert world.result(TASK)["success"]
    assert len(world.model.calls) == 2
    assert len(world.writer.repos[REPO].history) == 1
    assert len(set(world.sink.delivered[f"results/{TASK}.json"])) == 1
