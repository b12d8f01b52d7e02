"""What cannot be accepted is told, never dropped: a report in ``.kbw/rejected`` and, where it may go, a result."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.causes import os_cause
from tasks.contract import strict_json
from tasks.contract.ids import is_safe_task_id
from tasks.contract.result import Result
from tasks.contract.shape import JsonObject
from tasks.contract.trace import sent_traceparent
from tasks.errors import Code, JobError, TransientError
from tasks.ports import Record
from tasks.stages.job import PAYLOAD
from worker.masking import SecretMask
from worker.paths import OWN_FOLDER, AllowedRoots, PathError, write_atomic

log = logging.getLogger("kbw.intake")


@dataclass(frozen=True)
class Told:
    """Where a refusal was told: the report, and the file of the error result (``""``: none could be written)."""

    report: Path
    result_file: str


class Refusals:
    """Writes reports and error results for payloads that never became a job."""

    def __init__(
        self, roots: AllowedRoots, mask: SecretMask, mode: int | None = None, *, now: Callable[[], float] = time.time
    ) -> None:
        self._roots = roots
        self._mask = mask
        self._mode = mode
        self._now = now

    def refuse(
        self,
        error: JobError,
        *,
        content: bytes,
        path: str = "",
        document: JsonObject | None = None,
        answered_elsewhere: bool = False,
        asked_again: bool = False,
        first: Record | None = None,
    ) -> Told:
        """Report ``content`` (once for each content); answer at the payload's ``resultFile`` when that may be written.

        A refusal never touches another job: an existing file is never replaced, and nothing is written where the job
        known by this id (``first`` is its record) will have its result. ``path`` is where the payload was found.
        ``answered_elsewhere``: the sender is told on the way it came, its ``resultFile`` is left alone.
        ``asked_again``: a person asks; the answer is written although the report is there.
        Raises ``RESULT_DIR_MISSING`` (transient) when the shared directory takes no file.
        """
        task_id = told_task_id(document)
        name = task_id or hashlib.sha256(path.encode("utf-8", "surrogateescape")).hexdigest()
        report = (
            self._roots.shared_dir / OWN_FOLDER / "rejected" / f"{name}-{hashlib.sha256(content).hexdigest()[:8]}.json"
        )
        known, answered = report.exists(), ""
        if not answered_elsewhere and (asked_again or not known):
            answered = self._answer(error, document, task_id, first)
        if not known:
            body: JsonObject = {
                "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._now())),
                "taskId": task_id,
                "path": path,
                "errorCode": error.code,
                "errors": [error.zh],
                "reason": error.en,
                "resultFile": answered,
            }
            self._write(report, body)
            log.warning(
                "rejected", extra={"kbw": {"task_id": task_id, "path": path, "code": error.code, "reason": error.en}}
            )
        return Told(report, answered)

    def _write(self, report: Path, body: JsonObject) -> None:
        try:
            for folder in (report.parent.parent, report.parent):  # never the shared directory: it may be unmounted
                folder.mkdir(exist_ok=True)
            write_atomic(report, strict_json.dumps(self._mask.value(body)), self._mode)
        except OSError as fault:
            raise TransientError(
                Code.RESULT_DIR_MISSING,
                en=f"{report} cannot be written: {fault.strerror}; mount or free the shared directory",
                zh=f"共享目录暂时不可写：{os_cause(fault)}",
            ) from fault

    def _answer(self, error: JobError, document: JsonObject | None, task_id: str, first: Record | None) -> str:
        """Write the error result; where it went, ``""`` when no path in the payload can be trusted."""
        named = document.get("resultFile") if document else None
        if not task_id or not isinstance(named, str) or not named:
            return ""
        try:
            target = self._roots.check_result_path(named, payload_shared_dir(document), task_id=task_id)
            if target.exists() or target in self._places_of(task_id, first, document):
                return ""
            result = self._mask.value(error_result(task_id, error).document_for(sent_traceparent(document)))
            self._roots.write_result(target, strict_json.dumps(result), self._mode)
        except JobError as fault:
            log.warning("rejected.unanswered", extra={"kbw": {"task_id": task_id, "reason": fault.en}})
            return ""
        return str(target)

    def _places_of(self, task_id: str, first: Record | None, document: JsonObject | None) -> set[Path]:
        """Where the job that is known by this id was asked to put its result, by its record and by its own payload."""
        kept: Any = None
        if first is None or not first.pruned:  # its payload went with its folder: what lies there now is the second one
            with suppress(OSError, ValueError):
                folder = self._roots.shared_dir / OWN_FOLDER / "jobs" / task_id
                kept = strict_json.loads((folder / PAYLOAD).read_bytes())
        payload = kept if isinstance(kept, dict) else {}
        named = [payload.get("resultFile"), *((first.result_file, *first.more_result_files) if first else ())]
        places = set()
        for theirs in {payload_shared_dir(payload), payload_shared_dir(document)}:
            for path in named:
                with suppress(PathError, OSError):
                    if isinstance(path, str) and path:
                        places.add(self._roots.resolve(self._roots.rebase(path, theirs)))
        return places


def error_result(task_id: str, error: JobError) -> Result:
    """The result of a payload that never became a job."""
    return Result(success=False, task_id=task_id, errors=(error.zh,), error_code=error.code, retryable=error.retryable)


def told_task_id(document: JsonObject | None) -> str:
    """The ``taskId`` that a payload claims, if it can name a job; else ``""``."""
    found: Any = document.get("taskId") if document else None
    return found if isinstance(found, str) and is_safe_task_id(found) else ""


def payload_shared_dir(document: JsonObject | None) -> str | None:
    """What the sender calls the shared directory; it only rebases paths, see ``AllowedRoots.rebase``."""
    platform: Any = (document or {}).get("platform")
    found: Any = (document or {}).get("sharedDir") or (
        platform.get("sharedDir") if isinstance(platform, dict) else None
    )
    return found if isinstance(found, str) else None
