"""No accepted job is lost, no page or result appears twice, whatever process dies whenever (`./kbw test --chaos`)."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path

import pytest

from tests.chaos import proof
from tests.chaos.load import Load
from tests.chaos.storm import Storm
from tests.chaos.world import World, running_world

LEASE_S = 2.0
OPEN_AT_ONCE = 10
CALM_JOBS = 12
CALM_ROUNDS = 6
SETTINGS = {
    "KBW_LEASE_S": str(LEASE_S),
    "KBW_STALL_S": "1",
    "KBW_MAX_ATTEMPTS": "30",  # chance may hit one stage many times; the limit has its own test
    "KBW_VISIBILITY_S": "20",
    "KBW_SHUTDOWN_S": "10",
}


@pytest.mark.chaos
@pytest.mark.timeout(1800)
def test_over_a_hundred_kills_lose_nothing_and_double_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    weather(capsys, kills=int(os.environ.get("KBW_CHAOS_KILLS", "105")))


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_a_long_storm_loses_nothing_and_doubles_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    weather(capsys, kills=int(os.environ.get("KBW_SOAK_KILLS", "300")))


def weather(capsys: pytest.CaptureFixture[str], *, kills: int) -> None:
    """One storm, its proof and its figures. ``KBW_CHAOS_SEED`` repeats one; a failed one leaves its folder."""
    seed = int(os.environ.get("KBW_CHAOS_SEED") or time.time_ns() % 1_000_000)
    home = Path(tempfile.mkdtemp(prefix=f"kbw-chaos-{seed}-"))
    with capsys.disabled():
        print(f"\nstorm of {kills} kills, seed {seed}, folder {home}", flush=True)
        try:
            with running_world(home, seed, **SETTINGS) as world:
                survive(world, seed, kills)
        except BaseException:
            print(f"failed; everything is in {home}; again: KBW_CHAOS_SEED={seed} ./kbw test --chaos", flush=True)
            raise
    shutil.rmtree(home)


def survive(world: World, seed: int, kills: int) -> None:
    """The storm, then calm jobs to see that nothing leaks, then the proof."""
    began = time.monotonic()
    load = Load(world, OPEN_AT_ONCE)
    blows = world.system.home / "storm.log"
    with blows.open("a") as log:
        storm = Storm(world, load, seed, kills, 2 * LEASE_S + 1, told=lambda line: print(line, file=log, flush=True))
        storm.blow()
        storm.settle()
    stormed = time.monotonic() - began
    found = leaks(storm)
    found += proof.problems(world, load)
    facts = proof.figures(world, load)
    killed = f"{storm.killed} kills in {stormed:.0f} s {dict(storm.done.most_common())}"
    largest = max(number for _, number in proof.descriptors(world).values())
    print(f"{killed}\n{proof.as_lines(facts)}\n  most descriptors: {largest}", flush=True)
    assert not found, f"seed {seed}, {world.system.home}:\n" + "\n".join(found)


def leaks(storm: Storm) -> list[str]:
    """Processes whose open descriptors never stop growing.

    Pools open a connection when work first overlaps, so a few calm rounds may still add one (CI once saw 21 become
    24); a leak adds in every round.
    """
    calm(storm)
    suspects = proof.descriptors(storm.world)
    for _ in range(CALM_ROUNDS):
        calm(storm)
        suspects = proof.grown(suspects, proof.descriptors(storm.world))
        if not suspects:
            break
    return [f"{role} {pid} grew in every round, to {proof.targets(pid)}" for pid, (role, _) in suspects.items()]


def calm(storm: Storm) -> None:
    """A few jobs that nobody disturbs."""
    goal = len(storm.load.handed_in) + CALM_JOBS
    storm.wait(lambda: len(storm.load.handed_in) >= goal, "jobs cannot be handed in", feed=True)
    storm.settle()
