"""What is wrong or unwise in a knowledge file, with its place and its cure; must not look for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["error", "warning", "note"]


@dataclass(frozen=True)
class Finding:
    """One finding. ``where`` is a dotted path or a source's id; neither it nor the texts hold a secret."""

    level: Level
    code: str
    file: str
    line: int
    where: str
    message: str
    cure: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.level} {self.code} {self.where}: {self.message} → {self.cure}"
