"""A job folder in memory."""

from __future__ import annotations

import json
from collections.abc import Sequence

from tasks.contract import strict_json
from tasks.contract.shape import JsonObject


class MemoryFolder:
    """``JobFolder``: files by name. ``log`` keeps the order of effects."""

    path = "/memory/jobs/query-1-2"

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.log: list[str] = []

    def read(self, name: str) -> bytes | None:
        return self.files.get(name) or None

    def write(self, name: str, data: bytes) -> None:
        self.log.append(name)
        self.files[name] = data

    def append(self, name: str, line: JsonObject) -> None:
        self.log.append(name)
        self.files[name] = self.files.get(name, b"") + strict_json.line(line)

    def archive(self, names: Sequence[str], generation: int) -> None:
        for name in names:
            if name in self.files:
                self.files[f"attempts/{generation}/{name}"] = self.files.pop(name)

    def journal(self, name: str) -> list[JsonObject]:
        return [json.loads(line) for line in self.files.get(name, b"").splitlines()]
