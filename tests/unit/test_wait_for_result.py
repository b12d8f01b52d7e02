"""``kbw submit --wait``: waits through a restart, not for ever, and says so when the system stopped."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from tasks.errors import Code, PermanentError, StoreUnavailableError, TransientError
from tests.fakes import FailingAt, World, payload
from worker.ops.submit import _wait_for_result

TASK = "query-c1-m1"
AWAY = StoreUnavailableError("Redis cannot be reached")


def shop(world: World, *faults: Exception) -> Any:
    views = FailingAt(world.records, "get", *faults)
    folders = SimpleNamespace(open=world.folders.open, path_of=lambda task_id: f"/shared/.kbw/jobs/{task_id}")
    return SimpleNamespace(records=SimpleNamespace(views=views), clock=world.clock, folders=folders)


def finished() -> World:
    world = World()
    world.accept(payload())
    world.settle()
    return world


def test_the_result_decides_the_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    world = finished()

    assert _wait_for_result(shop(world), TASK, as_json=True) == 0
    assert json.loads(capsys.readouterr().out) == world.result(TASK)
    failed = World()
    failed.accept(payload(skill="make_coffee", taskId="coffee-c1-m1"))
    failed.settle()
    assert _wait_for_result(shop(failed), "coffee-c1-m1", as_json=True) == 1


def test_a_restart_of_the_system_is_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert _wait_for_result(shop(finished(), *[AWAY] * 100), TASK, as_json=True) == 0


def test_a_system_that_stopped_ends_the_wait_after_half_a_minute() -> None:
    world = finished()
    before = world.clock.now()

    with pytest.raises(StoreUnavailableError):
        _wait_for_result(shop(world, *[AWAY] * 10_000), TASK, as_json=True)
    assert 30.0 <= world.clock.now() - before <= 31.0


def test_workers_that_stopped_end_it_a_minute_after_the_deadline() -> None:
    world = World()
    world.accept(payload(deadlineSeconds=60))
    before = world.clock.now()

    with pytest.raises(PermanentError, match="still queued"):
        _wait_for_result(shop(world), TASK, as_json=True)
    assert 120.0 <= world.clock.now() - before <= 122.0


def test_a_record_that_vanished_is_told_with_the_folder() -> None:
    with pytest.raises(PermanentError, match=r"\.kbw/jobs/query-c1-m1"):
        _wait_for_result(shop(World()), TASK, as_json=True)


def test_a_host_whose_clock_is_a_day_ahead_waits_all_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    world = World()
    world.accept(payload())
    here = shop(world)
    here.clock = SimpleNamespace(
        now=lambda: world.clock.now() + 86_400, monotonic=world.clock.monotonic, sleep=lambda _: world.settle()
    )

    assert _wait_for_result(here, TASK, as_json=True) == 0
    assert json.loads(capsys.readouterr().out)["success"]


def test_a_job_that_is_held_up_says_why_as_show_does(capsys: pytest.CaptureFixture[str]) -> None:
    world = World()
    world.kb = FailingAt(
        world.kb, "latest", *[TransientError(Code.KB_UNREACHABLE, en="git.example.com is down", zh="x")]
    )
    world.accept(payload(deadlineSeconds=60))
    world.step()
    assert world.record(TASK).state == "parked"

    with pytest.raises(PermanentError, match=f"kbw show {TASK}"):
        _wait_for_result(shop(world), TASK, as_json=False)

    told = capsys.readouterr().err.splitlines()[0]
    assert told == f"{TASK}: prepare (parked): waits before attempt 2 (KB_UNREACHABLE: git.example.com is down)"
