"""A whole system for acceptance tests: real git server, scripted model, embedded Valkey, real worker processes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fakes import payload
from tests.scripted_model import ScriptedModel, answer_from_pages
from worker.adapters.job_store import EmbeddedValkey
from worker.adapters.job_store.address import Address, read_address, running_server
from worker.demo.git_server import GitServer

ROOT = Path(__file__).resolve().parents[2]
DEMO_KB = ROOT / "config" / "demo" / "kb"
TOKEN = "tok-3f9a17c2e8b4"
API_KEY = "sk-77aa01bc93de"
PATIENCE_S = 240.0
"""For everything that takes seconds: a machine with other work may be fifty times slower (91 s were seen)."""

PAGES = {
    "catalog.json": json.dumps(
        {
            "version": 1,
            "updatedAt": "2026-01-01T00:00:00Z",
            "pages": [
                {"path": f"concepts/p{n}.md", "title": f"第 {n} 页 重试与租约", "type": "concept", "kbType": "concept"}
                for n in range(1, 6)
            ],
        },
        ensure_ascii=False,
        indent=2,
    ).encode(),
    "index.md": b"# Knowledge Base Index\n\nUpdated at: 2026-01-01T00:00:00Z\n\n## Concepts\n",
    **{
        f"concepts/p{n}.md": f"---\ntitle: 第 {n} 页 重试与租约\ntype: concept\n---\n# 第 {n} 页\n\n"
        f"租约到期之后，协调器会在几秒之内再次唤醒任务，这是第 {n} 页的说明。\n".encode()
        for n in range(1, 6)
    },
}


@dataclass
class System:
    """Everything around one shared directory. ``environment`` is what an operator would export."""

    home: Path
    git: GitServer
    model: ScriptedModel
    environment: dict[str, str]
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def shared(self) -> Path:
        """The shared directory."""
        return self.home / "shared"

    @property
    def server(self) -> Address:
        """Where the embedded server of :meth:`up` listens."""
        address = read_address(self.home / "state" / "valkey")
        assert address is not None, self.tail()
        return address

    def kbw(self, *arguments: str, timeout: float = PATIENCE_S) -> subprocess.CompletedProcess[str]:
        """One command, to its end."""
        command = [sys.executable, "-P", "-m", "worker.cli", *arguments]
        return subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=timeout, check=False, cwd=self.home
        )

    def start(self, *arguments: str, log: str = "up.log", **changes: str) -> subprocess.Popen[bytes]:
        """A command that goes on (``up``, ``worker --class io``); its output goes to a file in the home folder."""
        with (self.home / log).open("ab") as out:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "worker.cli", *arguments],
                env={**self.environment, **changes},
                stdout=out,
                stderr=out,
                cwd=self.home,
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    def up(self, **changes: str) -> subprocess.Popen[bytes]:
        """``kbw up``, once commands beside it find its server."""
        process = self.start("up", **changes)
        if "KBW_REDIS_URL" not in self.environment:
            wait_for(lambda: running_server(self.home / "state"), PATIENCE_S, self.tail)
        return process

    def stop(self, process: subprocess.Popen[bytes], patience: float = PATIENCE_S) -> int:
        """SIGTERM, and the exit code."""
        process.send_signal(signal.SIGTERM)
        return process.wait(patience)

    def payload(self, number: int | str, **changes: Any) -> dict[str, Any]:
        """A payload for question ``number`` of a conversation of its own, asking for a QA page."""
        return payload(number, **changes)

    def drop(self, payload: Mapping[str, Any], folder: str = "payloads") -> Path:
        """Write the payload as the backend does: temporary name, then rename."""
        target = self.shared / folder / f"{payload['taskId']}.json"
        temporary = target.with_name(f".{target.name}.tmp")
        temporary.write_text(json.dumps(payload, ensure_ascii=False), "utf-8")
        temporary.rename(target)
        return target

    def result(self, task_id: str) -> dict[str, Any] | None:
        """The result file, once it is there."""
        try:
            found: dict[str, Any] = json.loads((self.shared / "results" / f"{task_id}.json").read_bytes())
        except FileNotFoundError:
            return None
        return found

    def results(self, task_ids: Sequence[str], patience: float = PATIENCE_S) -> dict[str, dict[str, Any]]:
        """All results; fails, telling where the jobs stand, when they do not come in time."""
        wait_for(
            lambda: all(self.result(task_id) for task_id in task_ids),
            patience,
            lambda: f"missing: {[t for t in task_ids if not self.result(t)]}\n{self.tail()}",
        )
        return {task_id: self.result(task_id) or {} for task_id in task_ids}

    def events(self, task_id: str) -> list[dict[str, Any]]:
        """The job's journal."""
        try:
            lines = (self.shared / ".kbw" / "jobs" / task_id / "events.jsonl").read_bytes().splitlines()
        except FileNotFoundError:
            return []
        found = []
        for line in lines:
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
        return found

    def commits_of(self, task_id: str) -> list[str]:
        """Commits on the default branch that carry this job's trailer."""
        text = self.git.git("team", "kb", "log", "--format=%H", f"--grep=^Task-Id: {re.escape(task_id)}$")
        return text.split()

    def catalog(self) -> list[dict[str, Any]]:
        """The entries of ``catalog.json`` at the server's head."""
        pages: list[dict[str, Any]] = json.loads(self.git.git("team", "kb", "show", "HEAD:catalog.json"))["pages"]
        return pages

    def tail(self) -> str:
        """The end of all logs, for a failing test."""
        return "\n".join(f"--- {log.name}\n{log.read_text('utf-8')[-4000:]}" for log in sorted(self.home.glob("*.log")))


@contextmanager
def running_system(home: Path, **settings: str) -> Iterator[System]:
    """A system that is set up but not started; all its processes are gone afterwards."""
    for name in ("payloads", "results", "attachments"):
        (home / "shared" / name).mkdir(parents=True)
    with GitServer(home / "git", "kbw-bot", TOKEN) as git, ScriptedModel(answer_from_pages(), token=API_KEY) as model:
        git.create("team", "kb", PAGES)
        environment = environment_of(home, git.url, model.base_url) | settings
        system = System(home, git, model, environment)
        try:
            yield system
        finally:
            for process in system.processes:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait(PATIENCE_S)
            _end_valkey(home / "state")


def environment_of(home: Path, git_url: str, model_url: str) -> dict[str, str]:
    """What an operator would export for a system in ``home``, with short times."""
    inherited = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "LANG", "TMPDIR")}
    return {
        **inherited,
        "PYTHONPATH": str(ROOT),
        "GITEA_URL": git_url,
        "GITEA_BOT_TOKEN": TOKEN,
        "GITEA_BOT_USERNAME": "kbw-bot",
        "GITEA_ORG": "team",
        "TEAM_KB_REPO": "kb",
        "OPENCLAW_SHARED_DIR": str(home / "shared"),
        "KBW_STATE_DIR": str(home / "state"),
        "KBW_CACHE_DIR": str(home / "cache"),
        "KBW_LLM_BASE_URL": model_url,
        "KBW_LLM_API_KEY": API_KEY,
        "KBW_LLM_MODEL": "scripted-1",
        "KBW_INTAKE_SETTLE_S": "0.3",
        "KBW_LEASE_S": "3",
        "KBW_STALL_S": "1",
    }


def _end_valkey(state: Path) -> None:
    """A killed ``kbw up`` leaves its server for the next one to adopt; here there is none."""
    try:
        pid = int((state / "valkey" / "valkey.pid").read_text())
        os.kill(pid, signal.SIGKILL)
    except (OSError, ValueError):
        return


def wait_for(condition: Callable[[], object], patience: float, told: Callable[[], str] = lambda: "") -> None:
    """Poll until the condition holds; fail with what ``told`` says when it does not in time."""
    limit = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < limit, told() or "the condition did not come true in time"
        time.sleep(0.02)


def kill_server(server: EmbeddedValkey) -> None:
    """SIGKILL, and until it is gone: a process lives on for a moment, and ``restart`` would take it for running."""
    os.kill(server.pid, signal.SIGKILL)
    wait_for(lambda: not server.alive(), PATIENCE_S)


def contents(folder: Path) -> Iterator[tuple[Path, bytes]]:
    """Every file below and what it holds. What running processes rename or remove meanwhile is passed over."""
    for place, _, names in os.walk(folder):
        for path in (Path(place, name) for name in names):
            try:
                held = path.read_bytes() if path.is_file() else None
            except FileNotFoundError:
                continue
            if held is not None:
                yield path, held


def pid_of(worker: str) -> int:
    """The process in a worker's name (``host:pid:random``)."""
    return int(worker.rsplit(":", 2)[1])
