"""What git prints about trees, differences and histories, as values; must not start git."""

from __future__ import annotations

from dataclasses import dataclass

LOG_FORMAT = "--format=%H%x1f%P%x1f%ct%x1f%(trailers:key=Task-Id,valueonly,separator=%x1e)"


@dataclass(frozen=True)
class TreeEntry:
    """One entry of a tree. ``path`` keeps bytes that are no UTF-8 as surrogate escapes."""

    mode: str
    kind: str
    id: str
    path: str


@dataclass(frozen=True)
class LoggedCommit:
    """A commit with the values of its ``Task-Id`` trailers; ``time`` in seconds since the epoch."""

    id: str
    parents: tuple[str, ...]
    time: int
    task_ids: tuple[str, ...]


def path_of(raw: bytes) -> str:
    """A path as git writes it."""
    return raw.decode("utf-8", "surrogateescape")


def tree_entry(line: bytes) -> TreeEntry:
    """A line of ``ls-tree``."""
    facts, _, raw_path = line.partition(b"\t")
    mode, kind, object_id = facts.decode("ascii").split(" ")
    return TreeEntry(mode, kind, object_id, path_of(raw_path))


def changed_entry(facts: bytes, raw_path: bytes) -> TreeEntry:
    """``facts`` as ``diff-tree --raw`` writes them: ``:<old mode> <mode> <old id> <id> <status>``."""
    _, mode, _, object_id, status = facts.decode("ascii").split(" ")
    kinds = {"120000": "link", "160000": "commit"}
    return TreeEntry(mode, "gone" if status == "D" else kinds.get(mode, "blob"), object_id, path_of(raw_path))


def logged_commit(line: bytes) -> LoggedCommit:
    """A commit as ``log`` prints it in :data:`LOG_FORMAT`."""
    commit, parents, seconds, trailers = line.decode("utf-8", "replace").strip("\n").split("\x1f", 3)
    task_ids = tuple(item.strip() for item in trailers.split("\x1e") if item.strip())
    return LoggedCommit(commit, tuple(parents.split()), int(seconds), task_ids)
