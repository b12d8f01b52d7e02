"""A file from outside, opened once and known by size and sha256; must not look at what it means."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass

from tasks.contract.payload import AttachmentRef
from worker.paths import AllowedRoots, PathError

_CHUNK = 1024 * 1024


class FileFaultError(Exception):
    """The file is not read; ``code`` is one of CONTRACT §4.1."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass(frozen=True)
class CheckedFile:
    """An open descriptor and what was read through it. ``verified``: the payload gave a sha256, and it is this one."""

    descriptor: int
    size: int
    sha256: str
    verified: bool
    stamp: tuple[int, int, int]

    def unchanged(self) -> bool:
        """Whether nobody wrote to the file since it was opened: what was read later is what was hashed."""
        return _stamp(self.descriptor) == self.stamp

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self.descriptor)


def open_checked(
    roots: AllowedRoots,
    attachment: AttachmentRef,
    payload_shared_dir: str | None,
    *,
    max_bytes: int,
    hurry: Callable[[], None],
) -> CheckedFile:
    """Open, measure and hash an attachment's file; the caller closes it.

    ``hurry`` is asked between blocks and raises when the job's time for attachments is over. Raises
    :class:`FileFaultError`.
    """
    if not attachment.storage_path or not attachment.storage_path.strip():
        raise FileFaultError("NO_FILE")
    try:
        descriptor = roots.open_readable(roots.rebase(attachment.storage_path, payload_shared_dir))
    except PathError as error:
        raise FileFaultError(error.fault) from error
    try:
        return _checked(descriptor, attachment, max_bytes, hurry)
    except OSError as error:
        os.close(descriptor)
        raise FileFaultError("NOT_FOUND") from error
    except BaseException:
        os.close(descriptor)
        raise


def _checked(descriptor: int, attachment: AttachmentRef, max_bytes: int, hurry: Callable[[], None]) -> CheckedFile:
    stamp = _stamp(descriptor)
    size = stamp[0]
    if attachment.size is not None and attachment.size != size:
        raise FileFaultError("INTEGRITY_MISMATCH")
    if size > max_bytes:
        raise FileFaultError("TOO_LARGE")
    sha256 = _hash(descriptor, size, hurry)
    wanted = (attachment.sha256 or "").strip().lower().removeprefix("sha256:")
    if (wanted and wanted != sha256) or _stamp(descriptor) != stamp:
        raise FileFaultError("INTEGRITY_MISMATCH")
    return CheckedFile(descriptor, size, sha256, bool(wanted), stamp)


def _hash(descriptor: int, size: int, hurry: Callable[[], None]) -> str:
    digest = hashlib.sha256()
    offset = 0
    while offset < size:
        hurry()
        block = os.pread(descriptor, min(_CHUNK, size - offset), offset)
        if not block:
            break  # shortened meanwhile: the stamp tells
        digest.update(block)
        offset += len(block)
    return digest.hexdigest()


def _stamp(descriptor: int) -> tuple[int, int, int]:
    found = os.fstat(descriptor)
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns
