"""A system whose every process can be killed and comes back: `kbw up`, workers of a second machine, the git server."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from redis import Redis
from redis.exceptions import RedisError

from tests.acceptance.system import API_KEY, PAGES, ROOT, TOKEN, System, environment_of
from tests.chaos.processes import Process, processes_of
from tests.model_shapes import Reply, Request, Rule
from tests.scripted_model import ScriptedModel, answer_from_pages
from worker.adapters.job_store.address import read_address
from worker.demo.git_server import GitServer

PAUSE_S = 0.5
"""Between two starts of a process that this driver looks after."""

SECOND_MACHINE = (("io", "1"), ("llm", "2"), ("commit", "1"))
"""Workers with a cache of their own, started beside the tree of `kbw up`: class and concurrency."""


@dataclass
class World:
    """What the driver starts, and starts again. ``system.git`` is only for looking: its server is a process."""

    system: System
    git_port: int = 0
    git_process: subprocess.Popen[str] | None = None
    kept: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    not_before: dict[str, float] = field(default_factory=dict)
    frozen: list[tuple[Process, float]] = field(default_factory=list)

    def tend(self) -> None:
        """Start again what died and is this driver's; let go on what was frozen for long enough."""
        if self.git_process is None or self.git_process.poll() is not None:
            self.start_git()
        self._keep("up", "up")
        if address := read_address(self.system.home / "state" / "valkey"):
            for kind, concurrency in SECOND_MACHINE:
                changes = {
                    "KBW_REDIS_URL": address.broker_url,
                    "KBW_CACHE_DIR": str(self.system.home / "second-cache"),
                }
                self._keep(f"second-{kind}", "worker", "--class", kind, "--concurrency", concurrency, **changes)
        for process, until in list(self.frozen):
            if time.monotonic() >= until:
                self.frozen.remove((process, until))
                signalled(process, signal.SIGCONT)

    def freeze(self, process: Process, seconds: float) -> bool:
        """SIGSTOP now, SIGCONT by :meth:`tend` later."""
        self.frozen.append((process, time.monotonic() + seconds))
        return signalled(process, signal.SIGSTOP)

    def tell_git(self, line: str) -> bool:
        """Give the git server an order; ``False`` when it is not there."""
        if self.git_process is None or self.git_process.poll() is not None:
            return False
        assert self.git_process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.git_process.stdin.write(f"{line}\n")
            self.git_process.stdin.flush()
            return True
        return False

    def kill_git(self) -> bool:
        """The server only: a ``receive-pack`` under way ends its work, as on a real host."""
        if self.git_process is None or self.git_process.poll() is not None:
            return False
        self.git_process.kill()
        self.git_process.wait(10)
        return True

    def redis(self) -> Redis:
        """A client for looking."""
        address = read_address(self.system.home / "state" / "valkey")
        assert address is not None, "no Valkey was ever started"
        return Redis.from_url(address.url, decode_responses=True, socket_timeout=10.0, socket_connect_timeout=5.0)

    def asked(self, *words: str) -> object:
        """One command; ``None`` while the server is away."""
        with contextlib.suppress(RedisError, OSError, AssertionError), contextlib.closing(self.redis()) as client:
            return client.execute_command(*words)
        return None

    def start_git(self) -> None:
        """The git server, at its old port."""
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tests.chaos.git_process", str(self.system.git.root), str(self.git_port)],
            env=self.system.environment, cwd=self.system.home, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True, start_new_session=True,
        )  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{TOKEN}\n")
        process.stdin.flush()
        self.git_port = int(process.stdout.readline().rpartition(":")[2])
        self.git_process = process

    def _keep(self, name: str, *arguments: str, **changes: str) -> None:
        process = self.kept.get(name)
        if process is not None and process.poll() is None:
            return
        if process is not None and name not in self.not_before:
            self.system.processes.remove(process)
            self.not_before[name] = time.monotonic() + PAUSE_S
        if time.monotonic() >= self.not_before.get(name, 0.0):
            self.not_before.pop(name, None)
            self.kept[name] = self.system.start(*arguments, log=f"{name}.log", **changes)


@contextlib.contextmanager
def running_world(home: Path, seed: int, **settings: str) -> Iterator[World]:
    """A world that is running; when it is left, nothing of it runs any more."""
    for name in ("payloads", "payloads/again", "results", "git"):
        (home / "shared" / name if name != "git" else home / name).mkdir(parents=True, exist_ok=True)
    git = GitServer(home / "git", "kbw-bot", TOKEN)
    git.create("team", "kb", PAGES)
    with ScriptedModel(unhurried(answer_from_pages(), random.Random(seed)), token=API_KEY) as model:
        system = System(home, git, model, {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]})
        world = World(system)
        world.start_git()
        system.environment = environment_of(home, f"http://127.0.0.1:{world.git_port}", model.base_url) | settings
        try:
            world.tend()
            yield world
        finally:
            end(world)


def end(world: World) -> None:
    """Kill whatever is still there."""
    for process, _ in world.frozen:
        signalled(process, signal.SIGCONT)
    for _ in range(3):  # the supervisor first: it would start the others again
        for process in sorted(processes_of(world.system.home), key=lambda found: found.role != "up"):
            signalled(process, signal.SIGKILL)
        time.sleep(0.2)
    for popen in world.system.processes:
        popen.wait(60)
    world.kill_git()
    with contextlib.suppress(OSError, ValueError):
        os.kill(int((world.system.home / "state" / "valkey" / "valkey.pid").read_text()), signal.SIGKILL)


def unhurried(willing: Rule, chance: random.Random) -> Rule:
    """A model that takes its time, so that a kill finds calls in flight."""

    def rule(request: Request) -> Reply:
        time.sleep(chance.uniform(0.02, 0.25))
        return willing(request)

    return rule


def signalled(process: Process, number: signal.Signals) -> bool:
    """Send a signal to that very process; ``False`` when it is gone."""
    try:
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        if int(fields[19]) != process.started:
            return False
        os.kill(process.pid, number)
    except OSError:
        return False
    return True
