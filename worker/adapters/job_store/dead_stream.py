"""Reading and emptying the stream of what never became a job; must not judge what an entry holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from worker.adapters.job_store.connection import connect, translated_faults


@dataclass(frozen=True)
class DeadEntry:
    """One entry of ``<prefix>dead``. ``content``: the beginning, masked; ``size``: bytes of the whole.

    ``entry_id`` is its own id, ``origin`` that of the refused entry of ``<prefix>jobs`` (``""``: it came another way).
    ``at`` in seconds since the epoch.
    """

    entry_id: str
    at: float
    task_id: str
    code: str
    reason: str
    origin: str
    size: int
    content: str


class DeadStream:
    """``<prefix>dead``, and the way back into ``<prefix>jobs``. All methods raise ``StoreUnavailableError``."""

    def __init__(self, url: str, prefix: str, *, timeout_s: float = 10.0) -> None:
        self._client: Any = connect(url, timeout_s=timeout_s, decode=False)
        self._jobs, self._results, self._dead = f"{prefix}jobs", f"{prefix}results", f"{prefix}dead"

    def count(self) -> int:
        """How many entries there are."""
        with translated_faults():
            return int(self._client.xlen(self._dead))

    def entries(self, limit: int) -> list[DeadEntry]:
        """Oldest first."""
        with translated_faults():
            return [_entry(key, fields) for key, fields in self._client.xrange(self._dead, count=limit)]

    def get(self, entry_id: str) -> DeadEntry | None:
        """One entry."""
        with translated_faults():
            found = self._client.xrange(self._dead, min=entry_id, max=entry_id)
        return _entry(*found[0]) if found else None

    def original(self, entry: DeadEntry) -> bytes | None:
        """The payload as it was sent, if it can still be had whole: from the jobs' stream, else from the report."""
        if entry.origin:
            with translated_faults():
                found = self._client.xrange(self._jobs, min=entry.origin, max=entry.origin)
            if found and b"payload" in found[0][1]:
                payload: bytes = found[0][1][b"payload"]
                return payload
        kept = entry.content.encode()
        return kept if len(kept) == entry.size else None

    def submit_again(self, entry: DeadEntry, payload: bytes) -> str:
        """Back into the jobs' stream and out of this one, in one step; the new entry's id."""
        with translated_faults():
            pipe = self._client.pipeline(transaction=True)
            pipe.xadd(self._jobs, {b"payload": payload})
            pipe.xdel(self._dead, entry.entry_id)
            added: bytes = pipe.execute()[0]
        return added.decode()

    def drop(self, entry_id: str) -> bool:
        """Forget one entry."""
        with translated_faults():
            return bool(self._client.xdel(self._dead, entry_id))

    def trim(self, older_than_s: float) -> int:
        """Forget dead letters and results that are older, by the server's clock; how many."""
        with translated_faults():
            seconds, _ = self._client.time()
            oldest = max(0, round((seconds - older_than_s) * 1000))
            return sum(
                int(self._client.xtrim(name, minid=oldest, approximate=False)) for name in (self._dead, self._results)
            )


def _entry(key: bytes, fields: dict[bytes, bytes]) -> DeadEntry:
    def text(name: str) -> str:
        return fields.get(name.encode(), b"").decode("utf-8", "replace")

    entry_id, size = key.decode(), text("bytes")
    return DeadEntry(
        entry_id=entry_id,
        at=int(entry_id.partition("-")[0]) / 1000,
        task_id=text("taskId"),
        code=text("errorCode"),
        reason=text("reason"),
        origin=text("entryId"),
        size=int(size) if size.isdecimal() else -1,
        content=text("content"),
    )
