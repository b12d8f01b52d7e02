"""A process that dies, or sleeps over its lease, right before any one effect of a job (`./kbw test --soak`).

The storm hits where chance has it; here every file, journal line and push of a job is a target once.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.acceptance.system import ROOT
from tests.chaos import proof
from tests.chaos.load import Load
from tests.chaos.storm import Storm
from tests.chaos.test_storm import LEASE_S, SETTINGS
from tests.chaos.world import World, running_world

ASLEEP_S = 3 * LEASE_S
FEWEST_STEPS = 25
"""Seven stages with start and end, eight files, push and its note: fewer would mean that nobody was hit."""


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGSTOP], ids=lambda blow: blow.name)
def test_no_step_of_a_job_can_be_missed_or_made_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], blow: signal.Signals
) -> None:
    orders = tmp_path / "orders"
    orders.mkdir()
    hooked = {"PYTHONPATH": f"{Path(__file__).parent / 'steps'}:{ROOT}", "STEPS_DIR": str(orders)}
    with running_world(tmp_path, 1, **SETTINGS, **hooked) as world:
        load = Load(world, open_at_once=1)
        storm = Storm(world, load, seed=1, kills=0, freeze_s=ASLEEP_S)
        one_job(storm)
        hit: list[str] = []
        while struck := strike(storm, orders, len(hit) + 1, blow):
            hit.append(struck)
        problems = proof.problems(world, load)
    with capsys.disabled():
        print(f"\n{blow.name} before {len(hit)} steps: {dict(Counter(hit))}", flush=True)
    assert problems == []
    assert len(hit) >= FEWEST_STEPS


def strike(storm: Storm, orders: Path, number: int, blow: signal.Signals) -> str:
    """One job whose ``number``-th effect is held up; what that was, ``""`` when the job has fewer."""
    order, hit = orders / f"order-{number}", orders / f"hit-{number}"
    (orders / "new").write_text(blow.name)
    (orders / "new").rename(order)
    one_job(storm, hit, ASLEEP_S if blow is signal.SIGSTOP else 0.0)
    if not hit.exists():
        order.unlink()
        return ""
    return hit.read_text().partition(" ")[2]


def one_job(storm: Storm, hit: Path | None = None, asleep_s: float = 0.0) -> None:
    """From the hand-in to the end of its record; whoever was stopped is let go after ``asleep_s``."""
    wanted, stopped_at = len(storm.load.handed_in) + 1, 0.0

    def over() -> bool:
        nonlocal stopped_at
        if hit and hit.exists():
            stopped_at = stopped_at or time.monotonic()
            if time.monotonic() - stopped_at < asleep_s:
                return False
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(hit.read_text().split()[0]), signal.SIGCONT)
        load = storm.load
        if len(load.handed_in) < wanted:
            load.feed()
        return len(load.handed_in) >= wanted and not load.open and is_quiet(storm.world)

    storm.wait(over, "a job does not end")


def is_quiet(world: World) -> bool:
    """Whether the record knows no open job."""
    states = ("queued", "running", "parked")
    return all(world.asked("ZCARD", f"kbw:state:{state}") == 0 for state in states)
