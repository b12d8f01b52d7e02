"""What runs in a system's home folder, as /proc tells it: who is who, whose child, how many descriptors."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")


@dataclass(frozen=True)
class Process:
    """One process. ``role``: ``up``, ``intake``, ``io``, ``llm``, ``commit``, ``<class> child``; ``""``: no kbw."""

    pid: int
    parent: int
    state: str
    started: int
    words: tuple[str, ...]
    role: str = ""

    def descriptors(self) -> int:
        """Open file descriptors; 0 when it is gone."""
        try:
            return len(os.listdir(PROC / str(self.pid) / "fd"))  # noqa: PTH208 - the count is all that is wanted
        except OSError:
            return 0


def processes_of(home: Path) -> list[Process]:
    """Every process of ours that works in ``home``, with its role."""
    found = {process.pid: process for process in all_processes() if _folder(process.pid) == str(home)}
    named = []
    for process in found.values():
        if "worker.cli" not in process.words:
            continue
        arguments = process.words[process.words.index("worker.cli") + 1 :]
        role = arguments[2] if arguments[:2] == ("worker", "--class") else "".join(arguments[:1])
        parent = found.get(process.parent)
        child = parent is not None and parent.words == process.words
        named.append(Process(**{**process.__dict__, "role": f"{role} child" if child else role}))
    return sorted(named, key=lambda process: process.pid)


def all_processes() -> Iterator[Process]:
    """Everything that runs on this machine."""
    for folder in PROC.glob("[0-9]*"):
        try:
            stat = (folder / "stat").read_text()
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        fields = stat.rpartition(")")[2].split()
        yield Process(int(folder.name), int(fields[1]), fields[0], int(fields[19]), tuple(words[:-1]))


def descendants(pids: set[int]) -> list[Process]:
    """All processes below ``pids``, at any depth."""
    below, everything = set(pids), list(all_processes())
    while True:
        more = {process.pid for process in everything if process.parent in below} - below
        if not more:
            return [process for process in everything if process.pid in below - pids]
        below |= more


def _folder(pid: int) -> str:
    try:
        return str((PROC / str(pid) / "cwd").readlink())
    except OSError:
        return ""
