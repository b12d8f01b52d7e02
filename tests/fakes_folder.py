"""Job folders in memory."""

from __future__ import annotations

import json
from collections.abc import Sequence

from tasks.contract import strict_json
from tasks.contract.shape import JsonObject
from tasks.errors import Code, TransientError


class MemoryFolder:
    """``JobFolder``: files by name. ``log`` keeps the order of effects; a write of what is in ``full`` fails."""

    def __init__(self, task_id: str = "query-1-2") -> None:
        self.path = f"/memory/jobs/{task_id}"
        self.files: dict[str, bytes] = {}
        self.log: list[str] = []
        self.full: set[str] = set()

    def read(self, name: str) -> bytes | None:
        return self.files.get(name) or None

    def write(self, name: str, data: bytes) -> None:
        if name in self.full:
            raise TransientError(Code.RESULT_DIR_MISSING, en=f"{name}: no space left", zh="磁盘已满")
        self.log.append(name)
        self.files[name] = data

    def write_once(self, name: str, data: bytes) -> bytes:
        if not self.files.get(name):
            self.write(name, data)
        return self.files[name]

    def append(self, name: str, line: JsonObject) -> None:
        self.log.append(name)
        self.files[name] = self.files.get(name, b"") + strict_json.line(line)

    def archive(self, names: Sequence[str], generation: int) -> None:
        for name in names:
            if name in self.files:
                self.files[f"attempts/{generation}/{name}"] = self.files.pop(name)

    def journal(self, name: str) -> list[JsonObject]:
        return [json.loads(line) for line in self.files.get(name, b"").splitlines()]


class MemoryFolders:
    """``JobFolders``. ``gone``: the share is not mounted."""

    def __init__(self) -> None:
        self.folders: dict[str, MemoryFolder] = {}
        self.gone = False

    def open(self, task_id: str, *, known: bool = False) -> MemoryFolder:
        if self.gone:
            raise TransientError(Code.RESULT_DIR_MISSING, en="the share is not mounted", zh="共享目录暂时不可用")
        return self.folders.setdefault(task_id, MemoryFolder(task_id))

    def task_ids(self) -> list[str]:
        return sorted(self.folders)

    def remove(self, task_id: str) -> None:
        self.folders.pop(task_id, None)
