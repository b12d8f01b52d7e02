"""The job folders below ``<sharedDir>/.kbw/jobs``: atomic artefacts, appended journals, secrets masked on the way in."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Sequence
from pathlib import Path

from tasks.contract import strict_json
from tasks.contract.ids import is_safe_task_id
from tasks.contract.shape import JsonObject
from tasks.errors import Code, PermanentError, TransientError
from worker.masking import SecretMask
from worker.paths import write_atomic

OWN_FOLDER = ".kbw"


class FolderStore:
    """All job folders of one shared directory."""

    def __init__(self, shared_dir: Path, mask: SecretMask, mode: int | None = None) -> None:
        self._root = shared_dir / OWN_FOLDER / "jobs"
        self._shared_dir = shared_dir
        self._mask = mask
        self._mode = mode

    def open(self, task_id: str) -> Folder:
        """The job's folder, created when it is missing.

        Raises ``RESULT_DIR_MISSING`` (transient) when the shared directory itself is gone: an unmounted share must
        not be filled with folders.
        """
        if not is_safe_task_id(task_id):
            raise PermanentError(Code.BAD_PAYLOAD, en=f"unsafe taskId {task_id[:80]!r}", zh="taskId 含有不允许的字符")
        folder = self._root / task_id
        if not self._shared_dir.is_dir():
            raise _unwritable(self._shared_dir, "is not there (unmounted?)")
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _unwritable(folder, error.strerror or str(error)) from error
        return Folder(folder, self._mask, self._mode)

    def task_ids(self) -> list[str]:
        """Jobs that have a folder."""
        if not self._root.is_dir():
            return []
        return sorted(entry.name for entry in os.scandir(self._root) if entry.is_dir() and is_safe_task_id(entry.name))


class Folder:
    """One job's folder."""

    def __init__(self, path: Path, mask: SecretMask, mode: int | None) -> None:
        self._path = path
        self._mask = mask
        self._mode = mode

    @property
    def path(self) -> str:
        """Absolute path, for people."""
        return str(self._path)

    def read(self, name: str) -> bytes | None:
        """The whole file, ``None`` when it is missing or empty."""
        try:
            return (self._path / name).read_bytes() or None
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise _unwritable(self._path / name, error.strerror or str(error)) from error

    def write(self, name: str, data: bytes) -> None:
        """Temporary + fsync + rename."""
        target = self._path / name
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(target, self._masked(name, data), self._mode)
        except OSError as error:
            raise _unwritable(target, error.strerror or str(error)) from error

    def write_once(self, name: str, data: bytes) -> bytes:
        """Write unless the file is there; the bytes that are there now. Two writers at once: one of them wins."""
        target, fresh = self._path / name, self._path / f".{name}.{secrets.token_hex(6)}.tmp"
        try:
            if not target.exists():
                write_atomic(fresh, self._masked(name, data), self._mode)
                with contextlib.suppress(FileExistsError):
                    os.link(fresh, target)
                fresh.unlink()
            return target.read_bytes()
        except OSError as error:
            raise _unwritable(target, error.strerror or str(error)) from error

    def append(self, name: str, line: JsonObject) -> None:
        """One line to a journal; a torn last line of a killed writer is closed first, so that ours stays readable."""
        target = self._path / name
        try:
            handle = os.open(target, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, self._mode or 0o666)
            try:
                size = os.fstat(handle).st_size
                torn = size > 0 and os.pread(handle, 1, size - 1) != b"\n"
                os.write(handle, (b"\n" if torn else b"") + strict_json.line(self._mask.value(line)))
            finally:
                os.close(handle)
        except OSError as error:
            raise _unwritable(target, error.strerror or str(error)) from error

    def archive(self, names: Sequence[str], generation: int) -> None:
        """Move the named files, if there, to ``attempts/<generation>/``."""
        target = self._path / "attempts" / str(generation)
        try:
            for name in names:
                if (self._path / name).exists():
                    (target / name).parent.mkdir(parents=True, exist_ok=True)
                    (self._path / name).replace(target / name)
        except OSError as error:
            raise _unwritable(target, error.strerror or str(error)) from error

    def _masked(self, name: str, data: bytes) -> bytes:
        """JSON is masked by value (an escaped secret is still one), other files as bytes."""
        if name.endswith(".json"):
            with contextlib.suppress(ValueError):
                document = json.loads(data)
                masked = self._mask.value(document)
                return data if masked == document else strict_json.dumps(masked)
        return self._mask.data(data)


def _unwritable(path: Path, reason: str) -> TransientError:
    return TransientError(
        Code.RESULT_DIR_MISSING,
        en=f"{path}: {reason}; mount or free the shared directory",
        zh=f"共享目录暂时不可用：{reason}",
    )
