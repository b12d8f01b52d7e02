"""A seeded storm: jobs flow while processes are killed, paced by progress and not by time; proofs are elsewhere.

The seed fixes what is killed in which order, how many steps jobs make in between, and how long after that the blow
falls. What a victim is doing at that moment is the machine's chance.
"""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tests.chaos.load import Load
from tests.chaos.processes import Process, descendants, processes_of
from tests.chaos.world import World, signalled

POLL_S = 0.05
PATIENCE_S = 240.0
"""Seconds that jobs may stand still in a storm; the longest repair is an election plus a lease plus a stall."""

DECK = (
    ["pool child"] * 7
    + ["io worker"] * 2
    + ["llm worker"] * 2
    + ["commit worker"]
    + ["committer"] * 3
    + ["reconciler"] * 2
    + ["intake"]
    + ["supervisor"]
    + ["valkey"] * 2
    + ["git server"] * 2
    + ["git client"] * 2
    + ["drop push"] * 3
    + ["freeze"] * 2
)
"""One shuffled round of blows. ``drop push`` and ``freeze`` are no kills and not counted as such."""

NO_KILLS = ("drop push", "freeze")


@dataclass
class Storm:
    """``kills`` SIGKILLs over ``world``, while ``load`` keeps jobs open. ``freeze_s``: longer than a lease."""

    world: World
    load: Load
    seed: int
    kills: int
    freeze_s: float
    done: Counter[str] = field(default_factory=Counter)
    told: Callable[[str], None] = lambda _line: None
    _chance: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)

    @property
    def killed(self) -> int:
        """SIGKILLs that hit."""
        return sum(number for kind, number in self.done.items() if kind not in NO_KILLS)

    def blow(self) -> None:
        """All kills, each after the jobs went on by a few steps."""
        for kind, steps, pause in self._plan():
            if self.killed >= self.kills:
                return
            goal = self.load.steps + steps
            self.wait(lambda goal=goal: self.load.steps >= goal, f"no progress before blow {kind!r}", feed=True)  # type: ignore[misc]
            time.sleep(pause)
            hit = self._strike(kind)
            self.told(f"{time.strftime('%H:%M:%S')} {kind} {hit or 'nobody there'} steps={self.load.steps}")
            self.done[kind] += bool(hit)

    def settle(self) -> None:
        """No more blows: every job gets its result."""
        self.wait(
            lambda: not self.load.open and not self.load.pending, "jobs without a result", patience=2 * PATIENCE_S
        )

    def wait(
        self, condition: Callable[[], bool], what: str, *, feed: bool = False, patience: float = PATIENCE_S
    ) -> None:
        """Tend the world until ``condition``; fails when it does not come."""
        limit = time.monotonic() + patience
        while True:
            self.world.tend()
            self.load.feed() if feed else self.load.hand_in()
            self.load.look()
            if condition():
                return
            if time.monotonic() > limit:
                raise AssertionError(f"{what} for {patience:.0f} s; open: {self.load.open}")
            time.sleep(POLL_S)

    def _plan(self) -> Iterator[tuple[str, int, float]]:
        while True:
            deck = list(DECK)
            self._chance.shuffle(deck)
            for kind in deck:
                yield kind, self._chance.randint(2, 5), self._chance.uniform(0.0, 0.15)

    # ---------------------------------------------------------------- blows

    def _strike(self, kind: str) -> str:
        """Who was hit, ``""`` when nobody was there."""
        if kind == "git server":
            return "git server" if self.world.kill_git() else ""
        if kind == "drop push":
            return "next push" if self.world.tell_git("drop_pushes 1") else ""
        victim = self._victim(kind)
        if victim is None:
            return ""
        name = f"{victim.role or victim.words[:2]} {victim.pid}"
        if kind == "freeze":
            return name if self.world.freeze(victim, self.freeze_s) else ""
        return name if signalled(victim, signal.SIGKILL) else ""

    def _victim(self, kind: str) -> Process | None:
        found = processes_of(self.world.system.home)
        if kind in ("committer", "reconciler"):
            return self._holder("kbw.query.commit:team/kb" if kind == "committer" else "reconciler", found)
        if kind == "valkey":
            pid = int(self._valkey_pid() or 0)
            return next((process for process in descendants({1}) if process.pid == pid), None)
        if kind == "git client":
            below = descendants({process.pid for process in found})
            return self._one(process for process in below if process.words and "git" in process.words[0])
        roles = {
            "pool child": ("io child", "commit child"),
            "io worker": ("io",),
            "llm worker": ("llm",),
            "commit worker": ("commit",),
            "intake": ("intake",),
            "supervisor": ("up",),
            "freeze": ("io child", "commit child", "llm"),
        }[kind]
        return self._one(process for process in found if process.role in roles)

    def _one(self, processes: Iterator[Process]) -> Process | None:
        found = list(processes)
        return self._chance.choice(found) if found else None

    def _holder(self, lock: str, found: list[Process]) -> Process | None:
        """Who has this lock at this moment; a committer holds his for a fraction of a second only."""
        limit = time.monotonic() + 3.0
        while time.monotonic() < limit:
            worker = self.world.asked("GET", f"kbw:lock:{lock}")
            if isinstance(worker, str):
                pid = int(worker.rsplit(":", 2)[1])
                return next((process for process in found if process.pid == pid), None)
            self.load.feed()
            time.sleep(0.01)
        return None

    def _valkey_pid(self) -> str:
        try:
            return (self.world.system.home / "state" / "valkey" / "valkey.pid").read_text().strip()
        except OSError:
            return ""
