"""A system whose workers a test hires and dismisses one by one: Valkey, intake, and processes of each class."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from redis import Redis

from tests.acceptance.system import PATIENCE_S, System, running_system, wait_for
from tests.model_shapes import Reply, Request
from tests.scripted_model import answer_from_pages
from worker.adapters.job_store import EmbeddedValkey

FULL = {"io": 2, "llm": 4, "commit": 1}
HANG_S = 600.0
"""Longer than anybody has patience: what hangs is let go by the test."""


@dataclass
class Staff:
    """``workers`` by name; a name begins with its class (``io``, ``io-second``) or is ``intake``."""

    system: System
    valkey: EmbeddedValkey
    workers: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    gate: threading.Event = field(default_factory=threading.Event)

    def hire(self, name: str, concurrency: int = 1, **changes: str) -> subprocess.Popen[bytes]:
        """A new process of that class, once it is ready."""
        kind, told = name.partition("-")[0], self._ready(name)
        self._start(name, concurrency, **changes)
        if kind != "intake":
            wait_for(lambda: self._ready(name) > told, PATIENCE_S, self.system.tail)
        return self.workers[name]

    def complete(self) -> None:
        """The usual staff, all faults off: what each test starts with."""
        self.gate.set()
        self.system.git.faults.delay_s = self.system.git.faults.push_delay_s = 0.0
        self.system.model.rule = answer_from_pages()
        for name, process in list(self.workers.items()):
            if process.poll() is not None or "-" in name:
                self.dismiss(name)
        missing = {name: self._ready(name) for name in ("intake", *FULL) if name not in self.workers}
        for name in missing:
            self._start(name, FULL.get(name, 1))
        for name in missing.keys() - {"intake"}:
            wait_for(lambda name=name: self._ready(name) > missing[name], PATIENCE_S, self.system.tail)  # type: ignore[misc]

    def dismiss(self, name: str) -> None:
        """SIGKILL to the process and its children."""
        process = self.workers.pop(name)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(PATIENCE_S)

    def hold_model(self) -> None:
        """Every model call waits until ``gate`` is set."""
        self.gate = gate = threading.Event()
        willing = answer_from_pages()

        def rule(request: Request) -> Reply:
            gate.wait(HANG_S)
            return willing(request)

        self.system.model.rule = rule

    def hang_git(self) -> None:
        """Requests to the git server wait until ``delay_s`` is lowered; mirrors forget their last look, so all ask."""
        self.system.git.faults.delay_s = HANG_S
        for look in self.system.home.glob("*cache/mirrors/*.json"):
            look.unlink(missing_ok=True)

    def started(self, task_id: str, stage: str, times: int = 1) -> str:
        """Wait for the ``times``-th start of a stage; who started it."""
        wait_for(lambda: len(self.starts(task_id, stage)) >= times, PATIENCE_S, self.system.tail)
        return self.starts(task_id, stage)[times - 1]

    def starts(self, task_id: str, stage: str) -> list[str]:
        """The workers that began this stage, in order."""
        events = self.system.events(task_id)
        return [e["worker"] for e in events if (e["event"], e["stage"]) == ("start", stage)]

    def started_again(self, task_ids: list[str]) -> dict[str, int]:
        """Stages that were begun more than once, over these jobs."""
        counts = Counter(
            f"{task_id} {event['stage']}"
            for task_id in task_ids
            for event in self.system.events(task_id)
            if event["event"] == "start"
        )
        return {name: number for name, number in counts.items() if number > 1}

    def one_effect(self, payload: dict[str, Any], patience: float = PATIENCE_S) -> dict[str, Any]:
        """The job's result: a success, with its one commit."""
        task_id = payload["taskId"]
        result = self.system.results([task_id], patience)[task_id]
        assert result["success"], result
        wait_for(lambda: any(e["event"] == "finish" for e in self.system.events(task_id)), PATIENCE_S, self.system.tail)
        assert self.system.commits_of(task_id) == [result["commitId"]]
        assert [entry["path"] for entry in self.system.catalog()].count(result["createdQaPath"]) == 1
        return result

    def redis(self) -> Redis:
        """A client for looking, and for losing messages."""
        return Redis.from_url(self.valkey.address.url, decode_responses=True)

    def _start(self, name: str, concurrency: int, **changes: str) -> None:
        kind = name.partition("-")[0]
        arguments = ["intake"] if kind == "intake" else ["worker", "--class", kind, "--concurrency", str(concurrency)]
        self.workers[name] = self.system.start(*arguments, log=f"{name}.log", **changes)

    def _ready(self, name: str) -> int:
        log = self.system.home / f"{name}.log"
        return log.read_text("utf-8").count('"worker.ready"') if log.exists() else 0


@contextlib.contextmanager
def staffed(home: Path, **settings: str) -> Iterator[Staff]:
    """A system with a Valkey of its own and nobody at work yet."""
    valkey = EmbeddedValkey(home / "broker", token=secrets.token_hex)
    short = {"KBW_LEASE_S": "4", "KBW_REDIS_URL": valkey.start().broker_url}
    with running_system(home, **(short | settings)) as system:
        try:
            yield Staff(system, valkey)
        finally:
            valkey.stop()
