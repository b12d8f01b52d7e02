"""What cannot be accepted is told, never dropped: a report in ``.kbw/rejected`` and, where it may go, a result."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tasks.contract import strict_json
from tasks.contract.ids import is_safe_task_id
from tasks.contract.result import Result
from tasks.contract.shape import JsonObject
from tasks.errors import JobError
from worker.masking import SecretMask
from worker.paths import OWN_FOLDER, AllowedRoots, write_atomic

log = logging.getLogger("kbw.intake")


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
    ) -> Path:
        """Report ``content`` (once for each content); answer at the payload's ``resultFile`` when that may be written.

        A conflict never touches the first job: an existing file is never replaced. ``path`` is where it was found.
        ``answered_elsewhere``: the sender is told on the way it came, its ``resultFile`` is left alone.
        """
        task_id = told_task_id(document)
        name = task_id or hashlib.sha256(path.encode("utf-8", "surrogateescape")).hexdigest()
        report = (
            self._roots.shared_dir / OWN_FOLDER / "rejected" / f"{name}-{hashlib.sha256(content).hexdigest()[:8]}.json"
        )
        if not report.exists():
            answered = "" if answered_elsewhere else self._answer(error, document, task_id)
            body = {
                "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._now())),
                "taskId": task_id,
                "path": path,
                "errorCode": error.code,
                "errors": [error.zh],
                "reason": error.en,
                "resultFile": answered,
            }
            report.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(report, strict_json.dumps(self._mask.value(body)), self._mode)
            log.warning(
                "rejected", extra={"kbw": {"task_id": task_id, "path": path, "code": error.code, "reason": error.en}}
            )
        return report

    def _answer(self, error: JobError, document: JsonObject | None, task_id: str) -> str:
        """Write the error result; where it went, ``""`` when no path in the payload can be trusted."""
        named = document.get("resultFile") if document else None
        if not task_id or not isinstance(named, str) or not named:
            return ""
        try:
            target = self._roots.check_result_path(named, _shared_dir(document), task_id=task_id)
            if target.exists():
                return ""
            result = error_result(task_id, error)
            self._roots.write_result(target, strict_json.dumps(self._mask.value(result.document())), self._mode)
        except JobError as fault:
            log.warning("rejected.unanswered", extra={"kbw": {"task_id": task_id, "reason": fault.en}})
            return ""
        return str(target)


def error_result(task_id: str, error: JobError) -> Result:
    """The result of a payload that never became a job."""
    return Result(success=False, task_id=task_id, errors=(error.zh,), error_code=error.code, retryable=error.retryable)


def told_task_id(document: JsonObject | None) -> str:
    """The ``taskId`` that a payload claims, if it can name a job; else ``""``."""
    found: Any = document.get("taskId") if document else None
    return found if isinstance(found, str) and is_safe_task_id(found) else ""


def _shared_dir(document: JsonObject | None) -> str | None:
    platform: Any = (document or {}).get("platform")
    found: Any = (document or {}).get("sharedDir") or (
        platform.get("sharedDir") if isinstance(platform, dict) else None
    )
    return found if isinstance(found, str) else None
