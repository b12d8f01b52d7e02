"""Finds payload files in the shared directory (CONTRACT §3.1); must not move, change or delete a file of the backend.

The directory is polled: network file systems send no events. A file is looked into once and again only when its inode,
size or time changes. The claim of record is ``accept``; two scanners at once would be harmless, one leads to save work.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tasks.contract import strict_json
from tasks.contract.ids import is_safe_task_id
from tasks.contract.result import is_result_of
from tasks.contract.shape import JsonObject
from tasks.contract.strict_json import json_cause
from tasks.errors import Code, PermanentError, TransientError
from worker.intake.document import MAX_PAYLOAD_BYTES
from worker.intake.refusal import Refusals, payload_shared_dir
from worker.paths import OWN_FOLDER, AllowedRoots, PathError

log = logging.getLogger("kbw.intake")

PAYLOAD_NAME = "payload.json"
TEMPORARY_ENDINGS = (".tmp", ".temp", ".part", ".partial", ".swp")
Signature = tuple[int, int, int]


@dataclass(frozen=True)
class Found:
    """A payload file that stood still. ``modified`` is its time in seconds since the epoch."""

    path: Path
    task_id: str
    content: bytes
    document: JsonObject
    modified: float


@dataclass
class _Sight:
    signature: Signature
    since: float
    looked: bool = False


@dataclass
class SharedDirScanner:
    """One look at a time: :meth:`look` gives the payloads that are new since the last one.

    ``settle_s``: how long size and time must stand still; ``give_up_s``: after this a file that is no JSON is reported.
    """

    roots: AllowedRoots
    refusals: Refusals
    exclude: Collection[str]
    settle_s: float
    give_up_s: float
    monotonic: Callable[[], float]
    _seen: dict[Path, _Sight] = field(default_factory=dict)
    _named: dict[Path, set[str]] = field(default_factory=dict)
    _jobs: set[str] = field(default_factory=set)

    def look(self) -> list[Found]:
        """All payload files that stood still since an earlier look and were not given out yet."""
        self._learn_jobs()
        now, present, found = self.monotonic(), set(), []
        for path, signature in self._candidates():
            present.add(path)
            sight = self._seen.get(path)
            if sight is None or sight.signature != signature:
                sight = self._seen[path] = _Sight(signature, now)
            if not sight.looked and now - sight.since >= self.settle_s and (payload := self._read(path, sight, now)):
                found.append(payload)
        for path in set(self._seen) - present:
            del self._seen[path]
        # an attachment may itself look like a payload: what another job names is never one
        return [payload for payload in found if not self._named.get(payload.path.resolve(), set()) - {payload.task_id}]

    def again(self, path: Path) -> None:
        """Give this file out once more at the next look (it could not be accepted just now)."""
        self._seen.pop(path, None)

    def result_at(self, found: Found) -> JsonObject | None:
        """The result of this very task that its ``resultFile`` holds, or ``None``."""
        named = found.document.get("resultFile")
        if not isinstance(named, str) or not named:
            return None
        try:
            result = strict_json.loads(self._content(self.roots.rebase(named, payload_shared_dir(found.document))))
        except (PathError, OSError, ValueError):
            return None
        return result if is_result_of(found.task_id, result) else None

    def _candidates(self) -> Iterator[tuple[Path, Signature]]:
        """Files whose name can be a payload's, with inode, size and time."""
        folders = [self.roots.shared_dir]
        while folders:
            folder = folders.pop()
            try:
                entries = list(os.scandir(folder))
            except OSError:
                continue  # gone or not readable now: looked at again next time
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if entry.name not in self.exclude and not entry.name.startswith("."):
                        folders.append(Path(entry.path))
                elif _may_be_payload(entry.name):
                    try:
                        status = entry.stat()
                    except OSError:
                        continue
                    if stat.S_ISREG(status.st_mode):
                        yield Path(entry.path), (status.st_ino, status.st_size, status.st_mtime_ns)

    def _read(self, path: Path, sight: _Sight, now: float) -> Found | None:
        content = b""
        try:
            content = self._content(path)
            document: Any = strict_json.loads(content)
        except (PathError, OSError, ValueError) as error:
            if now - sight.since >= self.give_up_s:
                sight.looked = self._report_broken(path, content, error)
            return None
        sight.looked = True
        task_id = path.parent.name if path.name == PAYLOAD_NAME else path.stem
        if not _is_payload(document, task_id):
            named = document.get("taskId") if isinstance(document, dict) else None
            if isinstance(named, str) and _is_payload(document, named):  # or an attachment that looks like one
                reason = f"a payload of this taskId is named {named}.json"
                log.warning("payload.ignored", extra={"kbw": {"task_id": named, "path": str(path), "reason": reason}})
            return None
        self._remember_paths(task_id, document)
        return Found(path, task_id, content, document, sight.signature[2] / 1e9)

    def _content(self, path: Path) -> bytes:
        """The file's bytes. Raises ``PathError``, ``OSError``, and ``ValueError`` when it is too large."""
        with os.fdopen(self.roots.open_readable(path), "rb") as file:
            content = file.read(MAX_PAYLOAD_BYTES + 1)
        if len(content) > MAX_PAYLOAD_BYTES:
            limit = MAX_PAYLOAD_BYTES // 1024**2
            raise strict_json.NotStrictError(f"it is larger than {limit} MiB", f"文件超过 {limit} MiB")
        return content

    def _report_broken(self, path: Path, content: bytes, fault: Exception) -> bool:
        """No path is taken from what cannot be read: it is only reported. ``False``: not now, the share is away."""
        reason = fault.reason if isinstance(fault, PathError) else str(fault)
        cause = json_cause(fault) if isinstance(fault, ValueError) else "文件无法读取"
        error = PermanentError(
            Code.BAD_PAYLOAD,
            en=f"{path} is still no JSON after {self.give_up_s:g} s: {reason}; write a temporary name, then rename",
            zh=f"任务文件 {path.name} 不是合法的 JSON：{cause}",
        )
        try:
            self.refusals.refuse(error, content=content, path=str(path))
        except TransientError as away:
            log.warning("intake.later", extra={"kbw": {"path": str(path), "reason": away.en}})
            return False
        return True

    def _learn_jobs(self) -> None:
        """Attachments and result files of all known jobs, whichever way they came in."""
        jobs = self.roots.shared_dir / OWN_FOLDER / "jobs"
        try:
            names = {entry.name for entry in os.scandir(jobs)}
        except OSError:
            return
        for name in names - self._jobs:
            try:
                self._remember_paths(name, strict_json.loads((jobs / name / PAYLOAD_NAME).read_bytes()))
            except (OSError, ValueError):
                continue  # being written; looked at again next time
            self._jobs.add(name)
        self._jobs &= names

    def _remember_paths(self, task_id: str, document: Any) -> None:
        if not isinstance(document, dict):
            return
        attachments = document.get("attachments")
        listed = attachments if isinstance(attachments, list) else []
        named = [item.get("storagePath") for item in listed if isinstance(item, dict)] + [document.get("resultFile")]
        for path in named:
            if isinstance(path, str) and path:
                with suppress(PathError, OSError):
                    place = self.roots.rebase(path, payload_shared_dir(document)).resolve()
                    self._named.setdefault(place, set()).add(task_id)


def _may_be_payload(name: str) -> bool:
    stem = name.removesuffix(".json")
    if stem == name or name.startswith((".", "~")) or stem.lower().endswith(TEMPORARY_ENDINGS):
        return False
    return is_safe_task_id(stem)


def _is_payload(document: Any, task_id: str) -> bool:
    if not isinstance(document, dict) or ("success" in document and not document.get("question")):
        return False
    return document.get("taskId") == task_id and "skill" in document
