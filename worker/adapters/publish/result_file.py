"""Delivers a result to the payload's ``resultFile`` inside the allowed roots; must not change a byte of it."""

from __future__ import annotations

import contextlib
from pathlib import Path

from tasks.contract.payload import Payload
from worker.paths import AllowedRoots, PathError


class ResultFileSink:
    """``ResultSink`` for the shared directory. A payload without ``resultFile`` is answered elsewhere: nothing here."""

    def __init__(self, roots: AllowedRoots, mode: int | None = None) -> None:
        self._roots = roots
        self._mode = mode

    def check(self, payload: Payload) -> None:
        """Whether the result could be written now. Raises ``PATH_NOT_ALLOWED`` or ``RESULT_DIR_MISSING``."""
        self._target(payload)

    def deliver(self, payload: Payload | None, task_id: str, document: bytes) -> None:  # noqa: ARG002 - the port's shape
        """Write the bytes: temporary, fsync, rename."""
        target = self._target(payload) if payload else None
        if target:
            self._roots.write_result(target, document, self._mode)

    def _target(self, payload: Payload) -> Path | None:
        if not payload.result_file:
            return None
        theirs = payload.shared_dir or payload.platform.shared_dir
        named = [payload.payload_file, *(attachment.storage_path for attachment in payload.attachments)]
        taken = []
        for path in filter(None, named):
            with contextlib.suppress(PathError):  # no path of ours: nothing the result could overwrite
                taken.append(self._roots.rebase(path, theirs))
        return self._roots.check_result_path(payload.result_file, theirs, task_id=payload.task_id, taken=taken)
