"""The streams beside the job record: payloads in, results and dead letters out; must not know what an entry means.

Names are ``<prefix>jobs``, ``<prefix>results`` and ``<prefix>dead``. Entries are read as raw bytes: any sender may have
written anything into them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import redis.exceptions as faults

from tasks.ports import Ack
from worker.adapters.job_store.connection import connect, script_of, translated_faults

GROUP = "kbw"
KEEP_RESULTS = 100_000
KEEP_DEAD = 10_000
FORGET_CONSUMER_S = 3_600
TOLD_ONCE_S = 86_400
MAX_SCANS = 1_000
END_OF_SCAN = b"0-0"

Fields = Mapping[str, str]


@dataclass(frozen=True)
class Entry:
    """One entry of ``<prefix>jobs``. ``deliveries``: how often it was handed to a consumer, this time included."""

    entry_id: str
    fields: Mapping[bytes, bytes]
    deliveries: int


class JobStreams:
    """Reads and acknowledges as one consumer of the group; every reply has a time limit.

    All methods raise ``StoreUnavailableError`` when the server cannot be reached or takes no writes.
    """

    def __init__(self, url: str, prefix: str, *, timeout_s: float = 10.0) -> None:
        self._client: Any = connect(url, timeout_s=timeout_s, decode=False)
        self._tidy = self._client.register_script(script_of("tidy_stream"))
        self.jobs, self.results, self.dead = f"{prefix}jobs", f"{prefix}results", f"{prefix}dead"
        self._told = f"{prefix}told:"

    def read(self, consumer: str, *, count: int, block_s: float) -> list[Entry]:
        """Entries that nobody was given yet; waits up to ``block_s`` (less than the client's time limit) for one."""
        block_ms = max(1, round(block_s * 1000))
        found = self._in_group(
            lambda: self._client.xreadgroup(GROUP, consumer, {self.jobs: ">"}, count=count, block=block_ms)
        )
        return [Entry(key.decode(), fields, 1) for _, entries in found or [] for key, fields in entries]

    def reclaim(self, consumer: str, *, idle_s: float) -> Entry | None:
        """One entry whose consumer did not finish it within ``idle_s``.

        One at a time: an entry that kills its consumer must not take its neighbours' deliveries with it.
        """
        cursor: bytes | str = "0-0"
        for _ in range(MAX_SCANS):  # each looks at ten pending entries
            call = partial(self._client.xautoclaim, self.jobs, GROUP, consumer, round(idle_s * 1000), cursor, count=1)
            cursor, claimed, *_ = self._in_group(call) or (END_OF_SCAN, [])
            for key, fields in claimed:
                if entry := self._claimed(key, fields):
                    return entry
            if cursor == END_OF_SCAN:
                break
        return None

    def _claimed(self, key: bytes | None, fields: Mapping[bytes, bytes] | None) -> Entry | None:
        if key is None:
            return None
        if not fields:  # trimmed away by somebody else: nothing is left to be done
            self.acknowledge(key.decode())
            return None
        pending = self._in_group(partial(self._client.xpending_range, self.jobs, GROUP, min=key, max=key, count=1))
        return Entry(key.decode(), fields, int(pending[0]["times_delivered"])) if pending else None

    def hold(self, consumer: str, entry_ids: Sequence[str]) -> None:
        """Start the idle time of these entries again: they are in good hands. Counts no delivery."""
        self._in_group(
            lambda: self._client.xclaim(self.jobs, GROUP, consumer, 0, message_ids=list(entry_ids), justid=True)
        )

    def ack_of(self, entry_id: str) -> Ack:
        """How the record's scripts acknowledge this entry."""
        return Ack(self.jobs, GROUP, entry_id)

    def acknowledge(self, entry_id: str, *, dead: Fields | None = None, result: Fields | None = None) -> None:
        """Done with an entry; what is to be told about it is added in the same step."""
        with translated_faults():
            pipe = self._client.pipeline(transaction=True)
            if dead:
                pipe.xadd(self.dead, _encoded(dead), maxlen=KEEP_DEAD, approximate=True)
            if result:
                pipe.xadd(self.results, _encoded(result), maxlen=KEEP_RESULTS, approximate=True)
            if entry_id:
                pipe.xack(self.jobs, GROUP, entry_id)
            pipe.execute()

    def submit(self, payload: bytes) -> str:
        """Add a payload as any sender would; its entry id."""
        with translated_faults():
            added: bytes = self._client.xadd(self.jobs, {b"payload": payload})
        return added.decode()

    def publish(self, fields: Fields) -> None:
        """Add one entry to the results; about the last 100,000 are kept."""
        with translated_faults():
            self._client.xadd(self.results, _encoded(fields), maxlen=KEEP_RESULTS, approximate=True)

    def publish_once(self, task_id: str, fields: Fields) -> None:
        """As :meth:`publish`, but at most once a day for one task: for deliveries that are tried again and again."""
        with translated_faults():
            if self._client.set(f"{self._told}{task_id}", b"1", nx=True, ex=TOLD_ONCE_S):
                self.publish(fields)

    def tidy(self) -> int:
        """Trim what every group has acknowledged and forget consumers long gone; how many entries went."""
        with translated_faults():
            return int(self._tidy(keys=[self.jobs], args=[GROUP, FORGET_CONSUMER_S * 1000]))

    def _in_group(self, call: Callable[[], Any]) -> Any:
        """The call's answer. ``None`` when the server does not know the group (new, or emptied): it is made now."""
        with translated_faults():
            try:
                return call()
            except faults.ResponseError as error:
                if "NOGROUP" not in str(error):
                    raise
                self._create_group()
        return None

    def _create_group(self) -> None:
        """From the stream's beginning: what was sent before we first looked counts, too."""
        try:
            self._client.xgroup_create(self.jobs, GROUP, id="0", mkstream=True)
        except faults.ResponseError as error:
            if "BUSYGROUP" not in str(error):  # another consumer was faster
                raise


def _encoded(fields: Fields) -> dict[bytes, bytes]:
    return {name.encode(): value.encode("utf-8", "replace") for name, value in fields.items()}
