"""The job folders below ``<sharedDir>/.kbw/jobs``: atomic artefacts, appended journals, secrets masked on the way."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import shutil
from collections.abc import Sequence
from pathlib import Path

from tasks.causes import os_cause
from tasks.contract import strict_json
from tasks.contract.ids import is_safe_task_id
from tasks.contract.shape import JsonObject
from tasks.errors import Code, PermanentError, TransientError
from worker.masking import SecretMask
from worker.paths import OWN_FOLDER, write_atomic

_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}
"""What file systems without hard links (SMB, FAT) answer."""


class FolderStore:
    """All job folders of one shared directory."""

    def __init__(self, shared_dir: Path, mask: SecretMask, mode: int | None = None) -> None:
        self._root = shared_dir / OWN_FOLDER / "jobs"
        self._shared_dir = shared_dir
        self._mask = mask
        self._mode = mode

    def open(self, task_id: str, *, known: bool = False) -> Folder:
        """The job's folder, created when it is missing.

        Raises ``RESULT_DIR_MISSING`` (transient) when the shared directory is gone: an unmounted share must not be
        filled with folders. The bare mount point is told by a ``known`` job: where one was accepted, there is a
        ``.kbw/jobs``.
        """
        if not is_safe_task_id(task_id):
            raise PermanentError(Code.BAD_PAYLOAD, en=f"unsafe taskId {task_id[:80]!r}", zh="taskId 含有不允许的字符")
        folder = self._root / task_id
        if not self._shared_dir.is_dir():
            raise _unwritable(self._shared_dir, "is not there (unmounted?)")
        if known and not self._root.is_dir():
            raise _unwritable(self._root, "is not there (share unmounted?)")
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _unwritable(folder, error) from error
        return Folder(folder, self._mask, self._mode)

    def path_of(self, task_id: str) -> str:
        """Where the job's folder is or would be, for people."""
        return str(self._root / task_id)

    def task_ids(self) -> list[str]:
        """Jobs that have a folder."""
        try:
            with os.scandir(self._root) as entries:
                return sorted(entry.name for entry in entries if entry.is_dir() and is_safe_task_id(entry.name))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _unwritable(self._root, error) from error

    def remove(self, task_id: str) -> None:
        """Delete a job's folder. Raises ``RESULT_DIR_MISSING`` (transient) when it cannot be deleted."""
        if not is_safe_task_id(task_id):
            raise PermanentError(Code.BAD_PAYLOAD, en=f"unsafe taskId {task_id[:80]!r}", zh="taskId 含有不允许的字符")
        folder = self._root / task_id
        try:
            shutil.rmtree(folder)
        except FileNotFoundError:
            return
        except OSError as error:
            raise _unwritable(folder, error) from error


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
            if not self._path.is_dir():  # nothing is known to be missing when the share itself went away
                raise _unwritable(self._path, "is not there any more (share unmounted?)") from None
            return None
        except OSError as error:
            raise _unwritable(self._path / name, error) from error

    def write(self, name: str, data: bytes) -> None:
        """Temporary + fsync + rename."""
        target = self._path / name
        try:
            if target.parent != self._path:
                target.parent.mkdir(exist_ok=True)  # never the job's folder: it would fill an unmounted share
            write_atomic(target, self._masked(name, data), self._mode)
        except OSError as error:
            raise _unwritable(target, error) from error

    def write_once(self, name: str, data: bytes) -> bytes:
        """Write unless the file is there; the bytes that are there now. Two writers at once: one of them wins."""
        target, fresh = self._path / name, self._path / f".{name}.{secrets.token_hex(6)}.tmp"
        try:
            if not _holds_something(target):
                try:
                    write_atomic(fresh, self._masked(name, data), self._mode)
                    _place(fresh, target)
                finally:
                    fresh.unlink(missing_ok=True)
                _sync_folder(self._path)  # the bytes are delivered next: they must not be forgotten by then
            return target.read_bytes()
        except OSError as error:
            raise _unwritable(target, error) from error

    def append(self, name: str, line: JsonObject) -> None:
        """One line to a journal; a torn last line of a killed writer is closed first, so that ours stays readable."""
        target, data = self._path / name, strict_json.line(line)
        if self._mask.is_in(data):
            data = strict_json.line(self._mask.value(line))
        try:
            handle = os.open(target, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, self._mode or 0o666)
            try:
                size = os.fstat(handle).st_size
                if size == 0 and self._mode is not None:
                    os.fchmod(handle, self._mode)  # open() took the umask off
                torn = size > 0 and os.pread(handle, 1, size - 1) != b"\n"
                os.write(handle, b"\n" + data if torn else data)
            finally:
                os.close(handle)
        except OSError as error:
            raise _unwritable(target, error) from error

    def archive(self, names: Sequence[str], generation: int) -> None:
        """Move the named files, if there, to ``attempts/<generation>/``."""
        target = self._path / "attempts" / str(generation)
        try:
            for name in names:
                if (self._path / name).exists():
                    (target / name).parent.mkdir(parents=True, exist_ok=True)
                    (self._path / name).replace(target / name)
        except OSError as error:
            raise _unwritable(target, error) from error

    def _masked(self, name: str, data: bytes) -> bytes:
        """JSON is masked by value (an escaped secret is still one), other files as bytes."""
        if not self._mask.is_in(data):
            return data
        if name.endswith(".json"):
            with contextlib.suppress(ValueError):
                return strict_json.dumps(self._mask.value(json.loads(data)))
        return self._mask.data(data)


def _holds_something(path: Path) -> bool:
    try:
        return path.stat().st_size > 0
    except FileNotFoundError:
        return False


def _place(fresh: Path, target: Path) -> None:
    """Give the finished file its name unless another writer was first (or a crash left an empty one)."""
    try:
        os.link(fresh, target)
    except FileExistsError:
        if not _holds_something(target):
            fresh.replace(target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if not _holds_something(target):  # no way to ask and place in one step here; leases keep writers apart
            fresh.replace(target)


def _sync_folder(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _unwritable(path: Path, reason: OSError | str) -> TransientError:
    """``reason``: what the system said, or that the place is not there at all."""
    en, zh = (
        (reason.strerror or str(reason), os_cause(reason)) if isinstance(reason, OSError) else (reason, "目录不存在")
    )
    return TransientError(
        Code.RESULT_DIR_MISSING,
        en=f"{path}: {en}; mount or free the shared directory",
        zh=f"共享目录暂时不可用：{zh}",
    )
