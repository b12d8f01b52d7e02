"""The elected loop: it wakes what stands still, does its chores in their time, and no fault of one stops the other."""

from __future__ import annotations

from tests.fakes import World, payload
from worker.reconciler import Chore, sweep_once

TASK = "query-c1-m1"


def test_a_job_whose_wake_up_call_was_lost_is_woken_by_the_elected_one_only() -> None:
    world = World()
    world.accept(payload())
    world.woken.clear()
    world.clock.sleep(6.0)

    assert sweep_once(world.worker("w1")) == 1
    assert sweep_once(world.worker("w2")) == 0
    assert [(stage, task_id) for _, stage, task_id in world.woken] == [("prepare", TASK)]


def test_chores_are_done_by_the_elected_one_in_their_time() -> None:
    world, done = World(), []
    chores = [Chore("now", 15.0, lambda: done.append("now")), Chore("later", 60.0, lambda: done.append("later"), 30.0)]

    sweep_once(world.worker("w1"), chores)
    sweep_once(world.worker("w2"), [Chore("other", 1.0, lambda: done.append("other"))])
    assert done == ["now"]
    world.clock.sleep(14.0)
    sweep_once(world.worker("w1"), chores)
    assert done == ["now"]
    world.clock.sleep(16.0)
    sweep_once(world.worker("w1"), chores)
    assert done == ["now", "now", "later"]


def test_a_chore_that_fails_stops_neither_the_waking_nor_the_others() -> None:
    world, done = World(), []
    world.accept(payload())
    world.woken.clear()
    world.clock.sleep(6.0)

    def failing() -> None:
        raise OSError("no space left")

    chores = [Chore("bad", 1.0, failing), Chore("good", 1.0, lambda: done.append("good"))]
    assert sweep_once(world.fleet, chores) == 1
    assert done == ["good"]
