"""Which commit a task already has: a small table beside the mirror, fed from the history; must not decide anything.

The history is the truth (``Task-Id`` trailers); the table only saves reading all of it each time. It may be deleted.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from worker.adapters.kb_git.git import BareRepo

_BUSY_S = 30.0
_CHUNK = 500
_ALL = 10_000_000  # commits with a trailer; git reads none of the others' messages twice
_TABLES = (
    "CREATE TABLE IF NOT EXISTS tasks (task_id TEXT PRIMARY KEY, commit_id TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS scanned (one INTEGER PRIMARY KEY CHECK (one = 1), tip TEXT NOT NULL)",
)


class TaskTable:
    """Task id → commit, for the history up to one tip. Safe for threads and processes (SQLite's own lock)."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def catch_up(self, repo: BareRepo, head: str) -> None:
        """Read what the history up to ``head`` holds and the table does not; all of it after a rewrite."""
        tip = self._tip()
        if not head or tip == head:
            return
        grown = bool(tip) and repo.is_ancestor(tip, head)
        commits = repo.log(head, since=tip if grown else "", limit=_ALL, grep="Task-Id: ")
        rows = [(task_id, commit.id) for commit in reversed(commits) for task_id in commit.task_ids]
        with self._open() as table:
            if not grown:
                table.execute("DELETE FROM tasks")
            self._store(table, rows, head)

    def add(self, parent: str, commit: str, task_ids: Iterable[str]) -> None:
        """Our own accepted commit on top of ``parent``: nothing has to be read again."""
        if self._tip() == parent:
            with self._open() as table:
                self._store(table, [(task_id, commit) for task_id in task_ids], commit)

    def find(self, task_ids: Sequence[str]) -> dict[str, str]:
        """The commits of those of ``task_ids`` that have one."""
        found: dict[str, str] = {}
        with self._open() as table:
            for start in range(0, len(task_ids), _CHUNK):
                chunk = task_ids[start : start + _CHUNK]
                marks = ",".join("?" * len(chunk))
                query = f"SELECT task_id, commit_id FROM tasks WHERE task_id IN ({marks})"  # noqa: S608  # marks only
                found.update(table.execute(query, chunk))
        return found

    def _tip(self) -> str:
        with self._open() as table:
            row = table.execute("SELECT tip FROM scanned").fetchone()
        return str(row[0]) if row else ""

    def _store(self, table: sqlite3.Connection, rows: Sequence[tuple[str, str]], tip: str) -> None:
        """Of two commits with one task the older counts."""
        table.executemany("INSERT OR IGNORE INTO tasks VALUES (?, ?)", rows)
        table.execute("INSERT OR REPLACE INTO scanned VALUES (1, ?)", (tip,))

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """One transaction. A file that is no database (disk full, killed machine) is thrown away once."""
        try:
            connection = self._connect()
        except sqlite3.DatabaseError:
            self._path.unlink(missing_ok=True)
            connection = self._connect()
        with closing(connection), connection:
            yield connection

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=_BUSY_S)
        try:
            connection.execute("PRAGMA synchronous = NORMAL")
            for table in _TABLES:
                connection.execute(table)
        except BaseException:
            connection.close()
            raise
        return connection
