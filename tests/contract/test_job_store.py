"""The job record keeps its promises, in memory and on a real server: one suite over both."""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import Any

import pytest

from tasks.ports import Ack, Claim, Failure, Record, Refusal
from tests.job_store_worlds import MODEL, POLICY, World, fake_world, new_job, server_world

REASON = Failure("KB_AUTH", "token refused", "令牌被拒绝")


@pytest.fixture(params=["memory", "server"])
def world(request: pytest.FixtureRequest) -> World:
    if request.param == "memory":
        return fake_world()
    return server_world(request.getfixturevalue("server_url"))


def taken(world: World, task_id: str, stage: str, *, endpoint: str = "", worker: str = "w1") -> Claim:
    claim = world.records.store.claim(task_id, stage, worker, endpoint=endpoint)
    assert isinstance(claim, Claim), claim
    return claim


def refused(world: World, task_id: str, stage: str, *, endpoint: str = "") -> Refusal:
    refusal = world.records.store.claim(task_id, stage, "w2", endpoint=endpoint)
    assert isinstance(refusal, Refusal), refusal
    return refusal


def record(world: World, task_id: str) -> Record:
    found = world.records.views.get(task_id)
    assert found is not None
    return found  # type: ignore[no-any-return]


def end(world: World, task_id: str, *, success: bool = True, code: str = "", commit_id: str = "") -> None:
    """Walk a job at any stage to its end."""
    if record(world, task_id).stage != "publish":
        claim = taken(world, task_id, record(world, task_id).stage)
        assert world.records.store.checkpoint(claim, "publish")
    claim = taken(world, task_id, "publish")
    assert world.records.store.finish(claim, success=success, code=code, commit_id=commit_id)


# ---------------------------------------------------------------- accept


def test_a_job_is_recorded_once_and_a_repeat_finds_it(world: World) -> None:
    first = world.records.store.accept(new_job("a"))
    repeat = world.records.store.accept(new_job("a"))
    assert (first.kind, repeat.kind) == ("new", "same")
    assert first.record.state == "queued"
    assert (first.record.stage, first.record.epoch, first.record.attempt) == ("prepare", 0, 0)
    assert first.record.deadline == pytest.approx(first.record.created + 900)
    assert repeat.record == first.record
    assert first.record.traceparent == "00-trace-01"


def test_other_content_under_one_id_is_a_conflict_and_the_first_stays_untouched(world: World) -> None:
    world.accept("a")
    before = record(world, "a")
    conflict = world.records.store.accept(new_job("a", digest="other", result_file="/shared/evil.json"))
    assert conflict.kind == "conflict"
    assert record(world, "a") == before


def test_a_repeat_that_names_another_result_file_is_remembered_once(world: World) -> None:
    world.accept("a")
    for path in ("/shared/r2.json", "/shared/r2.json", "/shared/r.json", ""):
        world.records.store.accept(new_job("a", result_file=path))
    assert record(world, "a").more_result_files == ("/shared/r2.json",)


def test_a_result_file_named_while_the_result_is_delivered_gets_it_too(world: World) -> None:
    world.accept("a", stage="publish")
    claim = taken(world, "a", "publish")
    world.records.store.accept(new_job("a", stage="publish", result_file="/shared/late.json"))
    assert world.records.store.finish(claim, success=True, code="", commit_id="")
    assert record(world, "a").state == "queued"
    assert world.records.sweep.freed(5) == [("a", "publish")]
    end(world, "a")
    assert record(world, "a").state == "done"


def test_a_pruned_job_is_still_known_for_a_year(world: World) -> None:
    world.accept("a")
    end(world, "a", commit_id="abc123")
    world.advance(40 * 86400)
    assert world.records.archive.prune(30 * 86400) == ["a"]
    assert world.records.views.counts()["done"] == 0
    late = world.records.store.accept(new_job("a"))
    assert (late.kind, late.record.commit_id, late.record.state, late.record.pruned) == ("same", "abc123", "done", True)
    assert late.record.result_file == new_job("a").result_file != ""
    assert world.records.store.accept(new_job("a", digest="other")).kind == "conflict"
    assert refused(world, "a", "prepare").reason == "unknown"
    world.advance(366 * 86400)
    assert world.records.store.accept(new_job("a", digest="other")).kind == "new"


def test_prune_leaves_open_and_young_jobs_alone(world: World) -> None:
    world.accept("old")
    end(world, "old")
    world.accept("open")
    world.advance(1000)
    world.accept("young")
    end(world, "young", success=False, code="KB_AUTH")
    assert world.records.archive.prune(500) == ["old"]
    assert record(world, "open").state == "queued"
    assert world.records.views.dead() == ["young"]
    world.advance(1000)
    assert world.records.archive.prune(500, limit=1) == ["young"]
    assert world.records.views.dead() == []


# ---------------------------------------------------------------- lease, epoch, attempts


def test_one_worker_holds_the_lease_and_the_attempt_counts_at_claim(world: World) -> None:
    world.accept("a")
    claim = taken(world, "a", "prepare")
    assert (claim.epoch, claim.attempt, claim.max_attempts) == (1, 1, 3)
    assert claim.lease_until == pytest.approx(world.now() + 60, abs=2)
    assert world.records.views.now() == pytest.approx(world.now(), abs=2)
    other = refused(world, "a", "prepare")
    assert (other.reason, other.until) == ("leased", claim.lease_until)
    held = record(world, "a")
    assert (held.state, held.worker, held.attempt) == ("running", "w1", 1)


@pytest.mark.parametrize(("stage", "reason"), [("select", "stage"), ("publish", "stage")])
def test_a_wake_up_for_another_stage_is_refused(world: World, stage: str, reason: str) -> None:
    world.accept("a")
    assert refused(world, "a", stage).reason == reason


def test_unknown_and_finished_jobs_are_refused(world: World) -> None:
    assert refused(world, "nobody", "prepare").reason == "unknown"
    world.accept("a")
    end(world, "a")
    assert refused(world, "a", "publish").reason == "over"


def test_a_dead_worker_is_replaced_and_fenced(world: World) -> None:
    world.accept("a")
    dead = taken(world, "a", "prepare")
    world.advance(61)
    new = taken(world, "a", "prepare", worker="w2")
    assert (new.epoch, new.attempt) == (2, 2)
    store = world.records.store
    assert not store.renew(dead)
    assert not store.checkpoint(dead, "select")
    assert not store.park(dead, 1, "X", "x")
    assert not store.fail(dead, REASON)
    assert not store.finish(dead, success=True, code="", commit_id="")
    assert store.checkpoint(new, "select")
    assert world.records.views.figures()["fenced"] == 5


def test_a_slow_worker_that_nobody_replaced_may_still_hand_in_its_work(world: World) -> None:
    world.accept("a")
    slow = taken(world, "a", "prepare")
    world.advance(61)
    assert world.records.sweep.stalled(10) == [("a", "prepare")]
    assert world.records.store.renew(slow)
    assert record(world, "a").state == "running"
    assert world.records.store.checkpoint(slow, "select")


def test_renewing_keeps_others_out(world: World) -> None:
    world.accept("a")
    claim = taken(world, "a", "prepare")
    for _ in range(4):
        world.advance(45)
        assert world.records.store.renew(claim)
        assert refused(world, "a", "prepare").reason == "leased"
    assert world.records.sweep.stalled(10) == []


def test_a_checkpoint_moves_on_once_and_its_repetition_is_recognised(world: World) -> None:
    world.accept("a")
    claim = taken(world, "a", "prepare")
    assert world.records.store.checkpoint(claim, "select")
    assert world.records.store.checkpoint(claim, "select"), "the first answer may have been lost on the way"
    assert not world.records.store.checkpoint(claim, "fetch")
    moved = record(world, "a")
    assert (moved.stage, moved.state, moved.attempt, moved.worker) == ("select", "queued", 0, "")
    assert not world.records.store.renew(claim)


def test_attempts_are_per_stage_and_the_last_one_is_followed_by_giving_up(world: World) -> None:
    world.accept("a")
    world.records.store.checkpoint(taken(world, "a", "prepare"), "fetch")
    for number in (1, 2, 3):
        assert taken(world, "a", "fetch").attempt == number
        world.advance(61)
    assert refused(world, "a", "fetch").reason == "to_publish"
    failure = world.records.views.failure("a")
    assert (failure.code, failure.retryable) == ("EXHAUSTED", True)
    assert "fetch" in failure.en
    assert "fetch" in failure.zh
    assert record(world, "a").failed_stage == "fetch"
    end(world, "a", success=False, code="EXHAUSTED")
    assert world.records.views.dead() == ["a"]


def test_giving_up_names_the_last_error(world: World) -> None:
    world.accept("a")
    for _ in range(3):
        world.records.store.park(taken(world, "a", "prepare"), 1, "KB_UNREACHABLE", "host gitea.test refused")
        world.advance(2)
    assert refused(world, "a", "prepare").reason == "to_publish"
    failure = world.records.views.failure("a")
    assert "KB_UNREACHABLE host gitea.test refused" in failure.en
    assert "KB_UNREACHABLE" in failure.zh


def test_publish_is_never_out_of_attempts(world: World) -> None:
    world.accept("a", stage="publish")
    for number in range(1, 9):
        assert taken(world, "a", "publish").attempt == number
        world.advance(61)


# ---------------------------------------------------------------- park, deadline, cancel


def test_a_parked_job_waits_its_time(world: World) -> None:
    world.accept("a")
    claim = taken(world, "a", "prepare")
    assert world.records.store.park(claim, 30, "KB_UNREACHABLE", "host down")
    parked = record(world, "a")
    assert (parked.state, parked.code, parked.error, parked.attempt) == ("parked", "KB_UNREACHABLE", "host down", 1)
    assert refused(world, "a", "prepare").reason == "parked"
    assert world.records.sweep.stalled(10) == []
    assert world.records.sweep.waiting("prepare", 10) == []
    world.advance(31)
    assert world.records.sweep.waiting("prepare", 10) == ["a"]
    assert world.records.sweep.stalled(10) == [("a", "prepare")]
    assert taken(world, "a", "prepare").attempt == 2


def test_a_worker_that_shuts_down_gives_its_attempt_back(world: World) -> None:
    world.accept("a")
    for _ in range(8):
        claim = taken(world, "a", "prepare")
        assert claim.attempt == 1
        assert world.records.store.park(claim, 0, "", "worker stops", counted=False)


def test_past_its_deadline_a_job_goes_to_publish_with_a_reason(world: World) -> None:
    world.accept("a", deadline_s=100)
    world.advance(101)
    assert refused(world, "a", "prepare").reason == "to_publish"
    assert world.records.views.failure("a").code == "DEADLINE"
    late = record(world, "a")
    assert (late.stage, late.state, late.code, late.retryable) == ("publish", "queued", "DEADLINE", True)
    assert taken(world, "a", "publish").attempt == 1


def test_a_deadline_passes_though_no_worker_of_that_stage_is_alive(world: World) -> None:
    world.accept("a", deadline_s=100)
    world.records.store.park(taken(world, "a", "prepare"), 5000, "KB_UNREACHABLE", "down")
    world.advance(101)
    assert world.records.sweep.stalled(10) == [("a", "publish")]
    assert world.records.views.failure("a").code == "DEADLINE"


def test_a_commit_once_begun_is_finished_in_spite_of_deadline_and_cancellation(world: World) -> None:
    world.accept("a", deadline_s=100, stage="commit")
    claim = taken(world, "a", "commit")
    assert world.records.control.cancel("a") == "too_late"
    world.advance(101)
    assert world.records.store.renew(claim)
    world.advance(61)
    assert world.records.sweep.stalled(10) == [("a", "commit")]
    again = taken(world, "a", "commit")
    assert world.records.store.checkpoint(again, "publish")
    end(world, "a")
    assert record(world, "a").state == "done"


def test_a_commit_not_yet_begun_still_obeys_the_deadline(world: World) -> None:
    world.accept("a", deadline_s=100, stage="commit")
    world.advance(101)
    assert refused(world, "a", "commit").reason == "to_publish"


def test_a_waiting_job_is_cancelled_at_once(world: World) -> None:
    world.accept("a")
    assert world.records.control.cancel("a") == "requested"
    assert world.records.sweep.freed(10) == [("a", "publish")]
    assert world.records.views.failure("a").code == "CANCELLED"
    end(world, "a", success=False, code="CANCELLED")
    assert record(world, "a").state == "cancelled"
    assert world.records.views.dead() == []
    assert world.records.control.cancel("a") == "over"
    assert world.records.control.cancel("nobody") == "unknown"


def test_a_running_job_is_told_at_its_next_renewal(world: World) -> None:
    world.accept("a")
    claim = taken(world, "a", "prepare")
    assert world.records.control.cancel("a") == "requested"
    assert record(world, "a").state == "running"
    assert not world.records.store.renew(claim)
    assert world.records.sweep.freed(5) == [("a", "publish")], "its result does not wait for the lease to end"
    assert not world.records.store.checkpoint(claim, "select")
    assert world.records.views.failure("a").code == "CANCELLED"


def test_a_cancelled_job_that_moves_on_is_stopped_at_the_next_stage(world: World) -> None:
    world.accept("a")
    claim = taken(world, "a", "prepare")
    world.records.control.cancel("a")
    assert world.records.store.checkpoint(claim, "select")
    assert refused(world, "a", "select").reason == "to_publish"


def test_a_job_that_was_cancelled_in_its_last_stage_before_publish_is_not_answered(world: World) -> None:
    world.accept("a", stage="apply")
    claim = taken(world, "a", "apply")
    assert world.records.control.cancel("a") == "requested"

    assert world.records.store.checkpoint(claim, "publish")
    assert world.records.store.checkpoint(claim, "publish"), "its repetition is recognised"

    assert (record(world, "a").stage, record(world, "a").failed_stage) == ("publish", "apply")
    assert world.records.views.failure("a").code == "CANCELLED"


def test_a_failure_is_published_and_then_listed_as_dead_letter(world: World) -> None:
    world.accept("a")
    assert world.records.store.fail(taken(world, "a", "prepare"), REASON)
    failed = record(world, "a")
    assert (failed.stage, failed.state, failed.code, failed.failed_stage) == ("publish", "queued", "KB_AUTH", "prepare")
    assert world.records.views.failure("a") == REASON
    end(world, "a", success=False, code="KB_AUTH")
    assert record(world, "a").state == "failed"
    assert world.records.views.dead() == ["a"]
    assert world.records.archive.drop("a")
    assert not world.records.archive.drop("a")
    assert world.records.views.dead() == []
    assert record(world, "a").state == "failed"


# ---------------------------------------------------------------- order of a conversation


def test_jobs_of_one_conversation_run_in_order_and_others_beside_them(world: World) -> None:
    for task_id in ("a1", "a2", "a3"):
        world.accept(task_id, lane="A")
    world.accept("b1", lane="B")
    refusal = refused(world, "a2", "prepare")
    assert refusal.reason == "order"
    waiting = record(world, "a2")
    assert (waiting.state, waiting.blocked, waiting.blocked_by, waiting.attempt) == ("queued", "order", "a1", 0)
    taken(world, "b1", "prepare")
    end(world, "a1")
    assert world.records.sweep.freed(10) == [("a2", "prepare")]
    assert refused(world, "a3", "prepare").reason == "order"
    second = taken(world, "a2", "prepare")
    assert (record(world, "a2").blocked, record(world, "a2").blocked_by) == ("", "")
    world.records.store.fail(second, REASON)
    end(world, "a2", success=False, code="KB_AUTH")
    assert world.records.sweep.freed(10) == [("a3", "prepare")]
    taken(world, "a3", "prepare")


def test_jobs_without_a_conversation_do_not_wait_for_each_other(world: World) -> None:
    world.accept("a")
    world.accept("b")
    taken(world, "b", "prepare")
    taken(world, "a", "prepare")


def test_a_head_that_stays_parked_does_not_block_for_ever(world: World) -> None:
    world.accept("head", lane="A", deadline_s=9000)
    world.accept("next", lane="A", deadline_s=9000)
    world.records.store.park(taken(world, "head", "prepare"), 3000, "KB_UNREACHABLE", "down")
    assert refused(world, "next", "prepare").reason == "order"
    world.advance(POLICY.lane_patience_s + 1)
    assert ("next", "prepare") in world.records.sweep.stalled(10)
    claim = taken(world, "next", "prepare")
    assert world.records.store.checkpoint(claim, "select")


def test_a_head_that_works_is_never_passed_over(world: World) -> None:
    world.accept("head", lane="A", deadline_s=9000)
    world.accept("next", lane="A", deadline_s=9000)
    claim = taken(world, "head", "prepare")
    for _ in range(20):
        world.advance(50)
        assert world.records.store.renew(claim)
    assert refused(world, "next", "prepare").reason == "order"


def test_an_error_result_does_not_wait_for_the_jobs_before_it(world: World) -> None:
    world.accept("head", lane="A")
    world.accept("next", lane="A")
    world.records.control.cancel("next")
    assert taken(world, "next", "publish").stage == "publish"


# ---------------------------------------------------------------- endpoints and gates


def test_the_cap_of_an_endpoint_holds_and_a_free_slot_goes_to_who_waits_longest(world: World) -> None:
    for task_id in "abcd":
        world.accept(task_id, stage="select")
        world.advance(1)
    first = taken(world, "a", "select", endpoint=MODEL)
    taken(world, "b", "select", endpoint=MODEL)
    for task_id in "dc":
        refusal = refused(world, task_id, "select", endpoint=MODEL)
        assert refusal.reason == "cap"
        assert refusal.until == pytest.approx(first.lease_until)
    view = world.records.views.endpoints()[0]
    assert (view.in_flight, view.cap, view.waiting) == (2, 2, 2)
    assert record(world, "c").attempt == 0
    assert world.records.store.checkpoint(first, "fetch")
    assert world.records.sweep.freed(10) == [("c", "select")]
    taken(world, "c", "select", endpoint=MODEL)
    assert refused(world, "d", "select", endpoint=MODEL).reason == "cap"
    taken(world, "a", "fetch")


def test_the_slot_of_a_dead_holder_frees_itself(world: World) -> None:
    for task_id in "abc":
        world.accept(task_id, stage="select")
    taken(world, "a", "select", endpoint=MODEL)
    alive = taken(world, "b", "select", endpoint=MODEL)
    assert refused(world, "c", "select", endpoint=MODEL).reason == "cap"
    world.advance(40)
    assert world.records.store.renew(alive)
    world.advance(21)
    assert ("c", "select") in world.records.sweep.stalled(10)
    taken(world, "c", "select", endpoint=MODEL)
    assert refused(world, "a", "select", endpoint=MODEL).reason == "cap"


def test_who_waited_long_for_a_slot_gets_a_dead_holders_slot_in_the_next_round(world: World) -> None:
    for task_id in "abc":
        world.accept(task_id, stage="select", deadline_s=9000)
    holders = [taken(world, task_id, "select", endpoint=MODEL) for task_id in "ab"]
    for _ in range(40):  # woken in vain again and again, ever more rarely
        world.advance(30)
        for holder in holders:
            assert world.records.store.renew(holder)
        if ("c", "select") in world.records.sweep.stalled(10):
            assert refused(world, "c", "select", endpoint=MODEL).reason == "cap"
    world.advance(61)
    assert ("c", "select") in world.records.sweep.freed(10) + world.records.sweep.stalled(10)


def test_a_holder_that_slept_past_its_lease_cannot_overfill_the_endpoint(world: World) -> None:
    for task_id in "abc":
        world.accept(task_id, stage="select")
    slept = taken(world, "a", "select", endpoint=MODEL)
    world.advance(61)
    taken(world, "b", "select", endpoint=MODEL)
    taken(world, "c", "select", endpoint=MODEL)
    assert not world.records.store.renew(slept)
    assert world.records.views.endpoints()[0].in_flight == 2


@pytest.mark.parametrize("release", ["park", "fail", "finish"])
def test_every_way_out_gives_the_slot_back(world: World, release: str) -> None:
    for task_id in "abc":
        world.accept(task_id, stage="select")
    claims = [taken(world, task_id, "select", endpoint=MODEL) for task_id in "ab"]
    assert refused(world, "c", "select", endpoint=MODEL).reason == "cap"
    store = world.records.store
    if release == "park":
        store.park(claims[0], 5, "MODEL_UNREACHABLE", "503")
    elif release == "fail":
        store.fail(claims[0], REASON)
    else:
        store.finish(claims[0], success=True, code="", commit_id="")
    assert world.records.sweep.freed(5) == [("c", "select")]
    taken(world, "c", "select", endpoint=MODEL)


def test_the_breaker_opens_lets_one_probe_through_and_closes_on_success(world: World) -> None:
    for task_id in "abc":
        world.accept(task_id, stage="select")
    report = world.records.store.report
    for _ in range(POLICY.breaker_faults):
        report(MODEL, ok=False)
    open_refusal = refused(world, "a", "select", endpoint=MODEL)
    assert open_refusal.reason == "breaker"
    assert open_refusal.until == pytest.approx(world.now() + POLICY.breaker_base_s, abs=1)
    assert record(world, "a").blocked == "breaker"
    world.accept("other", stage="select")
    taken(world, "other", "select", endpoint="https://healthy.test/v1")
    world.advance(POLICY.breaker_base_s + 1)
    probe = taken(world, "a", "select", endpoint=MODEL)
    assert refused(world, "b", "select", endpoint=MODEL).reason == "breaker"
    report(MODEL, ok=False)
    world.records.store.park(probe, 1, "MODEL_UNREACHABLE", "503")
    reopened = refused(world, "b", "select", endpoint=MODEL)
    assert reopened.until == pytest.approx(world.now() + 2 * POLICY.breaker_base_s, abs=1)
    world.advance(2 * POLICY.breaker_base_s + 1)
    taken(world, "b", "select", endpoint=MODEL)
    report(MODEL, ok=True)
    assert world.records.views.endpoints()[-1].open_until == 0
    taken(world, "c", "select", endpoint=MODEL)


def test_a_probe_that_dies_makes_room_for_the_next(world: World) -> None:
    for task_id in "ab":
        world.accept(task_id, stage="select")
    for _ in range(POLICY.breaker_faults):
        world.records.store.report(MODEL, ok=False)
    world.advance(POLICY.breaker_base_s + 1)
    taken(world, "a", "select", endpoint=MODEL)
    assert refused(world, "b", "select", endpoint=MODEL).reason == "breaker"
    world.advance(61)
    taken(world, "b", "select", endpoint=MODEL)


def test_single_faults_between_successes_do_not_open_the_breaker(world: World) -> None:
    world.accept("a", stage="select")
    for _ in range(10):
        world.records.store.report(MODEL, ok=False)
        world.records.store.report(MODEL, ok=False)
        world.records.store.report(MODEL, ok=True)
    taken(world, "a", "select", endpoint=MODEL)


@pytest.mark.parametrize("gate", ["queue:kbw.llm", f"endpoint:{MODEL}"])
def test_a_pause_holds_jobs_without_costing_attempts_and_resume_wakes_them(world: World, gate: str) -> None:
    world.accept("a", stage="select")
    world.records.control.pause(gate)
    assert world.records.control.paused() == [gate]
    for _ in range(5):
        assert refused(world, "a", "select", endpoint=MODEL).reason == "paused"
    assert record(world, "a").blocked_by == gate
    world.records.control.resume(gate)
    assert world.records.control.paused() == []
    assert world.records.sweep.freed(5) == [("a", "select")]
    assert taken(world, "a", "select", endpoint=MODEL).attempt == 1


# ---------------------------------------------------------------- the reconciler


def test_a_lost_wake_up_is_repeated_ever_more_rarely(world: World) -> None:
    world.accept("a")
    stalled = world.records.sweep.stalled
    assert stalled(10) == []
    world.advance(POLICY.stall_s + 0.5)
    assert stalled(10) == [("a", "prepare")]
    assert stalled(10) == []
    world.advance(POLICY.stall_s + 0.5)
    assert stalled(10) == [("a", "prepare")]
    world.advance(POLICY.stall_s + 0.5)
    assert stalled(10) == [], "a long queue must not be flooded with copies"
    world.advance(POLICY.stall_s)
    assert stalled(10) == [("a", "prepare")]


def test_a_dead_lease_comes_up_when_it_ends(world: World) -> None:
    world.accept("a")
    taken(world, "a", "prepare")
    world.advance(59)
    assert world.records.sweep.stalled(10) == []
    world.advance(2)
    assert world.records.sweep.stalled(10) == [("a", "prepare")]
    assert record(world, "a").state == "queued"


def test_a_sweep_is_bounded_and_finished_jobs_never_come_up(world: World) -> None:
    for number in range(5):
        world.accept(f"j{number}")
    end(world, "j0")
    world.advance(6)
    seen = world.records.sweep.stalled(3) + world.records.sweep.stalled(3)
    assert sorted(task_id for task_id, _ in seen) == ["j1", "j2", "j3", "j4"]


def test_one_worker_reconciles_until_its_term_ends(world: World) -> None:
    elect = world.records.sweep.elect
    assert elect("w1")
    assert not elect("w2")
    assert elect("w1")
    world.advance(POLICY.election_s + 0.5)
    assert elect("w2")
    assert not elect("w1")


def test_a_named_lock_belongs_to_its_owner_until_it_ends(world: World) -> None:
    sweep = world.records.sweep
    assert sweep.lock("repo", "w1", 30)
    assert not sweep.lock("repo", "w2", 30)
    sweep.unlock("repo", "w2")
    assert not sweep.lock("repo", "w2", 30)
    assert sweep.lock("other", "w2", 30)
    sweep.unlock("repo", "w1")
    assert sweep.lock("repo", "w2", 30)
    world.advance(31)
    assert sweep.lock("repo", "w1", 30)


def test_waiting_lists_who_could_be_claimed_oldest_first(world: World) -> None:
    for task_id in ("c1", "c2", "c3", "c4"):
        world.accept(task_id, stage="commit")
        world.advance(1)
    taken(world, "c1", "commit")
    world.records.store.park(taken(world, "c3", "commit"), 60, "KB_UNREACHABLE", "down")
    assert world.records.sweep.waiting("commit", 10) == ["c2", "c4"]
    assert world.records.sweep.waiting("commit", 1) == ["c2"]
    assert world.records.sweep.waiting("apply", 10) == []
    world.advance(61)
    assert set(world.records.sweep.waiting("commit", 10)) == {"c1", "c2", "c3", "c4"}


# ---------------------------------------------------------------- views, replay, restore


def test_lists_and_counts_follow_every_step(world: World) -> None:
    for task_id in "abcde":
        world.accept(task_id)
        world.advance(1)
    taken(world, "b", "prepare")
    world.records.store.park(taken(world, "c", "prepare"), 9, "X", "x")
    end(world, "d")
    end(world, "e", success=False, code="KB_AUTH")
    views = world.records.views
    assert views.counts() == {"queued": 1, "running": 1, "parked": 1, "done": 1, "failed": 1, "cancelled": 0}
    lists = {state: views.ids(state) for state in ("queued", "running", "parked", "done", "failed")}
    assert lists == {"queued": ["a"], "running": ["b"], "parked": ["c"], "done": ["d"], "failed": ["e"]}
    world.accept("f")
    assert views.ids("queued", oldest_first=False) == ["f", "a"]
    assert views.ids("queued", limit=1) == ["a"]
    assert views.ids("queued", limit=0) == []
    assert views.get("nobody") is None
    assert views.failure("nobody") is None


def test_a_replay_is_a_new_generation_and_old_workers_stay_fenced(world: World) -> None:
    world.accept("a", deadline_s=100)
    claim = taken(world, "a", "prepare")
    world.records.store.fail(claim, REASON)
    last = taken(world, "a", "publish")
    assert world.records.control.replay("a", "select") == "open"
    world.records.store.finish(last, success=False, code="KB_AUTH", commit_id="")
    world.advance(1000)
    assert world.records.control.replay("nobody", "select") == "unknown"
    assert world.records.control.replay("a", "select") == "replayed"
    again = record(world, "a")
    assert (again.generation, again.state, again.stage, again.attempt) == (1, "queued", "select", 0)
    assert again.epoch > last.epoch
    assert again.deadline == pytest.approx(world.now() + 100, abs=1)
    assert (again.code, again.error, again.finished) == ("", "", 0)
    assert world.records.views.failure("a") is None
    assert world.records.views.dead() == []
    for old in (claim, last):
        assert not world.records.store.renew(old)
        assert not world.records.store.finish(old, success=True, code="", commit_id="")
    new = taken(world, "a", "select")
    assert (new.generation, new.attempt) == (1, 1)


def test_a_forced_replay_takes_a_running_job_from_its_worker(world: World) -> None:
    world.accept("a", stage="select")
    claim = taken(world, "a", "select", endpoint=MODEL)
    assert world.records.control.replay("a", "prepare", force=True, deadline_s=50) == "replayed"
    assert not world.records.store.renew(claim)
    assert not world.records.store.checkpoint(claim, "fetch")
    assert world.records.views.endpoints()[0].in_flight == 0
    assert record(world, "a").deadline == pytest.approx(world.now() + 50, abs=1)
    taken(world, "a", "prepare")


def test_a_replayed_job_queues_up_behind_its_conversation(world: World) -> None:
    world.accept("a1", lane="A")
    end(world, "a1", success=False, code="KB_AUTH")
    world.accept("a2", lane="A")
    world.records.control.replay("a1", "prepare")
    world.accept("a3", lane="A")
    assert refused(world, "a1", "prepare").reason == "order"
    end(world, "a2")
    taken(world, "a1", "prepare")
    assert refused(world, "a3", "prepare").reason == "order"


def test_a_record_lost_with_redis_comes_back_from_what_the_folder_tells(world: World) -> None:
    world.accept("a")
    lost = replace(record(world, "a"), task_id="lost", stage="answer", epoch=7, generation=1, lane="A")
    assert world.records.archive.restore(lost, deadline_s=900)
    assert not world.records.archive.restore(replace(lost, stage="prepare"), deadline_s=900)
    back = record(world, "lost")
    assert (back.stage, back.state, back.epoch, back.generation, back.digest) == ("answer", "queued", 8, 1, "d1")
    assert ("lost", "answer") in world.records.sweep.stalled(10)
    assert taken(world, "lost", "answer").epoch == 9


def test_restoring_finished_and_failed_jobs_keeps_their_end(world: World) -> None:
    world.accept("a")
    end(world, "a", commit_id="abc")
    model = record(world, "a")
    world.records.archive.restore(replace(model, task_id="d"), deadline_s=900)
    world.records.archive.restore(
        replace(model, task_id="f", state="failed", code="KB_AUTH", failed_stage="fetch"), deadline_s=900
    )
    noted = replace(model, task_id="p", state="queued", stage="publish", finished=0.0)
    world.records.archive.restore(noted, deadline_s=900, failure=REASON)
    assert (record(world, "d").state, record(world, "d").commit_id) == ("done", "abc")
    assert world.records.views.dead() == ["f"]
    assert record(world, "f").failed_stage == "fetch"
    assert world.records.views.failure("p") == REASON
    assert world.records.store.accept(new_job("d")).kind == "same"
    assert refused(world, "d", "publish").reason == "over"


def test_the_fleet_counts_exactly(world: World) -> None:
    world.accept("a")
    world.records.store.accept(new_job("a"))
    world.records.store.accept(new_job("a", digest="x"))
    refused(world, "a", "select")
    end(world, "a", success=False, code="KB_AUTH")
    figures = world.records.views.figures()
    expected = {"accepted": 1, "duplicates": 1, "conflicts": 1, "claims": 2, "refused/stage": 1, "finished/failed": 1}
    assert {name: figures[name] for name in expected} == expected


# ---------------------------------------------------------------- the server alone


def test_durations_are_kept_in_buckets(server_url: str) -> None:
    world = server_world(server_url)
    world.accept("a")
    world.advance(3)
    claim = taken(world, "a", "prepare")
    world.advance(7)
    world.records.store.checkpoint(claim, "select")
    figures = world.records.views.figures()
    assert figures["wait_ms/prepare/le/5000"] == 1
    assert figures["stage_ms/prepare/le/10000"] == 1
    assert figures["stage_ms/prepare/count"] == 1
    assert 7000 <= figures["stage_ms/prepare/sum"] < 10_000


def test_a_stream_entry_is_acknowledged_in_the_same_step_as_its_job(server_url: str) -> None:
    world = server_world(server_url)
    client: Any = world.records.client
    stream = f"jobs-{secrets.token_hex(4)}"
    client.xgroup_create(stream, "kbw", mkstream=True)
    entries = [client.xadd(stream, {"payload": "{}"}) for _ in range(4)]
    client.xreadgroup("kbw", "c1", {stream: ">"}, count=10)
    acks = [Ack(stream, "kbw", entry) for entry in entries]
    store = world.records.store
    assert store.accept(new_job("a"), ack=acks[0]).kind == "new"
    assert store.accept(new_job("a"), ack=acks[1]).kind == "same"
    assert client.xpending(stream, "kbw")["pending"] == 2
    assert store.accept(new_job("a", digest="x"), ack=acks[2]).kind == "conflict"
    end(world, "a")
    assert store.accept(new_job("a"), ack=acks[3]).kind == "same"
    assert client.xpending(stream, "kbw")["pending"] == 2, "the caller acknowledges after it has told or delivered"


def test_text_of_any_language_and_shape_comes_back_as_it_was(server_url: str) -> None:
    world = server_world(server_url)
    odd = "query-对话:1.{x}-%s 'q\" \\ 😀"
    world.accept(odd, lane="会话 {lane}")
    reason = Failure("INTERNAL", "100% {stage} %1 broken", "失败：{lastzh}😀")
    world.records.store.fail(taken(world, odd, "prepare"), reason)
    assert world.records.views.failure(odd) == reason
    assert record(world, odd).lane == "会话 {lane}"


def test_a_server_that_forgot_the_scripts_is_taught_again(server_url: str) -> None:
    world = server_world(server_url)
    world.accept("a")
    world.records.client.script_flush()
    taken(world, "a", "prepare")
