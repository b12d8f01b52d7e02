"""One test a row of the fault table (facts/celery-redis §2.1): what Celery on Redis loses or doubles, we do not.

The broker gives nothing back in these tests (its visibility timeout is an hour): what comes back comes by the record.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from tasks.query import query
from tests.acceptance.staff import FULL, HANG_S, Staff, staffed
from tests.acceptance.system import PATIENCE_S, kill_server, pid_of, wait_for
from tests.model_shapes import Reply, Request
from tests.scripted_model import answer_from_pages
from worker.app import build_app, waker

pytestmark = pytest.mark.acceptance
LEASE_S = 4.0
MAX_ATTEMPTS = 3


@pytest.fixture(scope="module")
def company(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Staff]:
    with staffed(
        tmp_path_factory.mktemp("staff"), KBW_LEASE_S=str(LEASE_S), KBW_MAX_ATTEMPTS=str(MAX_ATTEMPTS)
    ) as found:
        yield found


@pytest.fixture
def staff(company: Staff) -> Staff:
    """Everybody at work, no fault switched on."""
    company.complete()
    return company


# ---------------------------------------------------------------- processes die


def test_a_pool_child_killed_in_mid_stage_is_replaced_and_the_stage_runs_again(staff: Staff) -> None:
    staff.hang_git()
    payload = staff.system.payload("child")
    staff.system.drop(payload)
    os.kill(pid_of(staff.started(payload["taskId"], "prepare")), signal.SIGKILL)
    staff.system.git.faults.delay_s = 0.0
    staff.one_effect(payload)
    assert len(staff.starts(payload["taskId"], "prepare")) == 2
    assert staff.workers["io"].poll() is None, "its main process goes on"


def test_a_main_process_killed_in_mid_stage_costs_a_lease_and_not_the_visibility_timeout(staff: Staff) -> None:
    staff.hold_model()
    payload = staff.system.payload("main")
    staff.system.drop(payload)
    staff.started(payload["taskId"], "select")
    staff.dismiss("llm")
    staff.gate.set()
    staff.hire("llm", FULL["llm"])
    staff.one_effect(payload)
    assert len(staff.starts(payload["taskId"], "select")) == 2


def test_a_server_killed_with_jobs_queued_and_at_work_loses_none_of_them(staff: Staff) -> None:
    staff.hold_model()
    payloads = [staff.system.payload(f"aof{number}") for number in range(10)]
    for payload in payloads:
        staff.system.drop(payload)
    for payload in payloads:
        wait_for(lambda task=payload["taskId"]: staff.system.events(task), PATIENCE_S, staff.system.tail)  # type: ignore[misc]
    kill_server(staff.valkey)
    time.sleep(1.0)
    staff.valkey.restart()
    staff.gate.set()
    for payload in payloads:
        staff.one_effect(payload)
    assert staff.workers["llm"].poll() is None, "workers connect again by themselves"


def test_many_shutdowns_under_load_lose_nothing_and_repeat_nothing(staff: Staff) -> None:
    payloads = [staff.system.payload(f"warm{number}") for number in range(20)]
    for payload in payloads:
        staff.system.drop(payload)
    for name in ("io", "llm", "commit"):
        wait_for(
            lambda name=name: staff.system.result(payloads[0]["taskId"]) or name == "io", PATIENCE_S, staff.system.tail
        )  # type: ignore[misc]
        assert staff.system.stop(staff.workers[name]) == 0
        staff.hire(name, FULL[name])
    for payload in payloads:
        staff.one_effect(payload)
    assert not staff.started_again([payload["taskId"] for payload in payloads])


@pytest.mark.parametrize("number", [signal.SIGQUIT, signal.SIGTERM], ids=["at once", "within KBW_SHUTDOWN_S"])
def test_a_worker_that_has_to_leave_during_a_model_call_gives_the_job_back(
    staff: Staff, number: signal.Signals
) -> None:
    staff.dismiss("llm")
    staff.hire("llm", FULL["llm"], KBW_SHUTDOWN_S="1")
    staff.hold_model()
    payload = staff.system.payload(f"leave-{number}")
    staff.system.drop(payload)
    staff.started(payload["taskId"], "select")
    staff.workers["llm"].send_signal(number)
    assert staff.workers["llm"].wait(PATIENCE_S) == 0, "the call goes on for longer"
    with staff.redis() as client:
        record = client.hgetall(f"kbw:job:{payload['taskId']}")
    assert (record["held"], record["attempt"]) == ("0", "0"), "no lease to wait for, no attempt counted"
    staff.gate.set()
    staff.hire("llm", FULL["llm"])
    staff.one_effect(payload)


def test_a_pool_told_to_leave_at_once_leaves_its_stage_to_the_next(staff: Staff) -> None:
    staff.hang_git()
    payload = staff.system.payload("quit")
    staff.system.drop(payload)
    staff.started(payload["taskId"], "prepare")
    staff.workers["io"].send_signal(signal.SIGQUIT)
    staff.workers["io"].wait(PATIENCE_S)
    staff.system.git.faults.delay_s = 0.0
    staff.hire("io", FULL["io"])
    staff.one_effect(payload)


# ---------------------------------------------------------------- messages


def test_a_stage_longer_than_its_lease_is_not_run_twice_while_its_worker_lives(staff: Staff) -> None:
    staff.hire("llm-second", 4)
    willing, calls = answer_from_pages(), []

    def slow(request: Request) -> Reply:
        calls.append(request)
        time.sleep(1.5 * LEASE_S)
        return willing(request)

    staff.system.model.rule = slow
    payload = staff.system.payload("long")
    staff.system.drop(payload)
    staff.one_effect(payload)
    assert len(calls) == 2, "one selection and one answer were paid for"
    assert not staff.started_again([payload["taskId"]])


def test_a_message_that_comes_many_times_has_one_effect(staff: Staff) -> None:
    staff.hold_model()
    payload = staff.system.payload("doubled")
    task_id = payload["taskId"]
    wake = waker(build_app(staff.valkey.address.broker_url, "kbw:"))
    staff.system.drop(payload)
    staff.started(task_id, "select")
    for step in query.steps:
        for _ in range(10):
            wake(query, step.name, task_id)
    staff.gate.set()
    staff.one_effect(payload)
    for step in query.steps:
        wake(query, step.name, task_id)
    time.sleep(1.0)
    assert not staff.started_again([task_id])
    assert len(staff.system.commits_of(task_id)) == 1


def test_a_message_that_got_lost_is_replaced_by_the_reconciler(staff: Staff) -> None:
    staff.system.stop(staff.workers["io"])
    payload = staff.system.payload("lost")
    staff.system.drop(payload)
    wait_for(lambda: staff.system.events(payload["taskId"]), PATIENCE_S, staff.system.tail)
    with staff.redis() as client:
        wait_for(lambda: client.llen("kbw:mq:kbw.io"), PATIENCE_S, staff.system.tail)
        client.delete("kbw:mq:kbw.io")
    staff.hire("io", FULL["io"])
    staff.one_effect(payload)


# ---------------------------------------------------------------- poison, and workers that come back


def test_a_job_that_kills_its_worker_each_time_is_stopped_and_told(staff: Staff) -> None:
    staff.hang_git()
    poison, innocent = staff.system.payload("poison"), staff.system.payload("innocent")
    task_id = poison["taskId"]
    staff.system.drop(poison)
    for attempt in range(1, MAX_ATTEMPTS + 1):
        os.kill(pid_of(staff.started(task_id, "prepare", attempt)), signal.SIGKILL)
    staff.system.git.faults.delay_s = 0.0
    result = staff.system.results([task_id])[task_id]
    assert (result["success"], result["errorCode"]) == (False, "EXHAUSTED")
    assert "prepare" in result["errors"][0]
    assert len(staff.starts(task_id, "prepare")) == MAX_ATTEMPTS
    staff.system.drop(innocent)
    staff.one_effect(innocent)


@pytest.mark.parametrize("stage", ["prepare", "commit"])
def test_a_worker_that_slept_over_its_lease_comes_back_without_effect(staff: Staff, stage: str) -> None:
    name = "commit" if stage == "commit" else "io"
    staff.hire(f"{name}-second", 1, KBW_CACHE_DIR=str(staff.system.home / "second-cache"))
    if stage == "prepare":
        staff.hang_git()
    else:
        staff.system.git.faults.push_delay_s = HANG_S
    payload = staff.system.payload(f"asleep-{stage}")
    task_id = payload["taskId"]
    staff.system.drop(payload)
    sleeper = pid_of(staff.started(task_id, stage))
    os.kill(sleeper, signal.SIGSTOP)
    staff.system.git.faults.push_delay_s = 0.0  # its push under way is no part of it, and gets through
    try:
        assert pid_of(staff.started(task_id, stage, 2)) != sleeper
        staff.system.git.faults.delay_s = 0.0
        before = staff.one_effect(payload)
    finally:
        os.kill(sleeper, signal.SIGCONT)
    wait_for(lambda: any(e["event"] == "fenced" for e in staff.system.events(task_id)) or stage == "commit", PATIENCE_S)
    time.sleep(2.0)
    assert staff.one_effect(payload) == before
    assert len(staff.starts(task_id, stage)) == 2


# ---------------------------------------------------------------- a deploy


@pytest.mark.chaos
@pytest.mark.timeout(900)
def test_a_rolling_restart_of_all_workers_under_a_load_of_200_jobs(staff: Staff) -> None:
    payloads = [staff.system.payload(f"deploy{number}") for number in range(200)]
    task_ids = [payload["taskId"] for payload in payloads]

    def hand_in() -> None:
        for payload in payloads:
            staff.system.drop(payload)
            time.sleep(0.05)

    sender = threading.Thread(target=hand_in)
    sender.start()
    for name in ("intake", "io", "llm", "commit"):
        time.sleep(1.0)
        leaving = staff.workers[name]
        leaving.send_signal(signal.SIGTERM)
        staff.hire(name, FULL.get(name, 1))  # the new one is there before the old one is gone, as in a deploy
        assert leaving.wait(PATIENCE_S) == 0
    sender.join()
    results = staff.system.results(task_ids)
    assert all(result["success"] for result in results.values()), [r for r in results.values() if not r["success"]]
    assert all(len(staff.system.commits_of(task_id)) == 1 for task_id in task_ids)
    assert len({result["createdQaPath"] for result in results.values()}) == len(payloads)
