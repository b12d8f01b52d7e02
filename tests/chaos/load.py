"""The jobs of a storm: handed in by all ways, never more than a few open at once; must not kill anything."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos.world import World

Signature = tuple[int, int, int]


@dataclass
class Load:
    """Hands in jobs and watches their results and journals. Every third shares a conversation with the next one."""

    world: World
    open_at_once: int
    handed_in: list[str] = field(default_factory=list)
    pending: list[dict[str, Any]] = field(default_factory=list)
    results: dict[str, str] = field(default_factory=dict)
    changed: list[str] = field(default_factory=list)
    repeats: int = 0
    steps: int = 0
    _signatures: dict[str, Signature] = field(default_factory=dict)
    _offsets: dict[str, int] = field(default_factory=dict)
    _finished: set[str] = field(default_factory=set)

    @property
    def open(self) -> list[str]:
        """Jobs without a result."""
        return [task_id for task_id in self.handed_in if task_id not in self.results]

    def feed(self) -> None:
        """Keep so many jobs open."""
        while len(self.open) + len(self.pending) < self.open_at_once:
            self.pending.append(self._next())
        self.hand_in()

    def hand_in(self) -> None:
        """Give what is waiting to the system: files by renaming, stream entries while the server is there."""
        waiting, self.pending = self.pending, []
        for payload in waiting:
            number = int(payload["messageId"])
            if number % 5 == 0 and not self._sent(payload):
                self.pending.append(payload)
                continue
            if number % 5:
                self.world.system.drop(payload)
            if number % 7 == 0:  # the backend repeats itself
                self.world.system.drop(payload, "payloads/again")
                self.repeats += 1
            self.handed_in.append(payload["taskId"])

    def look(self) -> None:
        """Take in what happened since the last look: new journal lines, new results, results that changed."""
        for path in (self.world.system.shared / "results").glob("query-*.json"):
            self._look_at_result(path)
        for task_id in self.handed_in:
            if task_id not in self._finished:
                self._read_journal(task_id)

    def _sent(self, payload: dict[str, Any]) -> bool:
        return self.world.asked("XADD", "kbw:jobs", "*", "payload", json.dumps(payload)) is not None

    def _next(self) -> dict[str, Any]:
        number = len(self.handed_in) + len(self.pending) + 1
        conversation = f"pair{number // 3}" if number % 3 < 2 else f"alone{number}"
        task_id = f"query-{conversation}-{number}"
        return self.world.system.payload(
            number,
            taskId=task_id,
            conversationId=conversation,
            messageId=number,
            resultFile=f"results/{task_id}.json",
        )

    def _look_at_result(self, path: Path) -> None:
        try:
            stat = path.stat()
            signature = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
            if self._signatures.get(path.stem) == signature:
                return
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
        except FileNotFoundError:
            if path.stem in self.results:
                self.changed.append(f"{path.name}: vanished")
            return
        self._signatures[path.stem] = signature
        if self.results.setdefault(path.stem, digest) != digest:
            self.changed.append(f"{path.name}: other bytes than before")

    def _read_journal(self, task_id: str) -> None:
        journal = self.world.system.shared / ".kbw" / "jobs" / task_id / "events.jsonl"
        try:
            with journal.open("rb") as file:
                file.seek(self._offsets.get(task_id, 0))
                lines = file.read().rpartition(b"\n")[0]
        except FileNotFoundError:
            return
        if lines:
            self._offsets[task_id] = self._offsets.get(task_id, 0) + len(lines) + 1
        self.steps += lines.count(b'"checkpoint"') + lines.count(b'"finish"')
        if b'"finish"' in lines:
            self._finished.add(task_id)
