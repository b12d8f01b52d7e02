"""Which files we may open and write for a job, and how they are written; must not decide what a file means.

CONTRACT §1: a path counts only after its symlinks are resolved, and again on the descriptor that was opened.
"""

from __future__ import annotations

import errno
import json
import os
import posixpath
import re
import secrets
import stat
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PureWindowsPath
from typing import Literal

from tasks.causes import os_cause
from tasks.contract.result import is_result_of
from tasks.errors import Code, PermanentError, TransientError

OWN_FOLDER = ".kbw"
MAX_EXISTING_RESULT = 32 * 1024 * 1024
"""A file that is already at ``resultFile`` and larger than this is not a result of ours."""

_OF_WINDOWS = re.compile(r"[A-Za-z]:[\\/]|\\\\")
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # O_NONBLOCK: a FIFO must not hang us

PathFault = Literal["NOT_FOUND", "OUTSIDE_ALLOWED_ROOTS", "NOT_A_FILE"]


class PathError(Exception):
    """A path is not opened. ``fault`` is one of the attachment codes of CONTRACT §4.1; ``reason`` is English."""

    def __init__(self, fault: PathFault, reason: str) -> None:
        super().__init__(f"{fault}: {reason}")
        self.fault = fault
        self.reason = reason


class AllowedRoots:
    """The folders that a payload may name files in.

    ``shared_dir`` is ours, absolute. ``roots`` is ``KBW_ALLOWED_ROOTS``; without it the shared directory is the only
    root. Roots are resolved at each use: a share may be mounted after we started.
    """

    def __init__(self, shared_dir: Path, roots: Sequence[Path] = ()) -> None:
        self.shared_dir = shared_dir.absolute()
        self.roots = tuple(root.absolute() for root in roots) or (self.shared_dir,)

    def rebase(self, path: str, payload_shared_dir: str | None) -> Path:
        """Where a payload's path lies here; nothing is opened or resolved yet.

        An absolute path below the payload's own ``sharedDir`` means the same relative path below ours, a relative path
        is relative to ours; with a backend on Windows both are written its way. Raises :class:`PathError` for text that
        cannot be a path here.
        """
        if not path:
            raise PathError("NOT_FOUND", "the path is empty")
        try:
            if b"\0" in os.fsencode(path):
                raise PathError("OUTSIDE_ALLOWED_ROOTS", "the path holds a NUL character")
        except UnicodeEncodeError as error:
            raise PathError("OUTSIDE_ALLOWED_ROOTS", "the path is not valid text") from error
        if _OF_WINDOWS.match(path) or _OF_WINDOWS.match(payload_shared_dir or ""):
            return self.shared_dir / _below_on_windows(path, payload_shared_dir)
        return self.shared_dir / (_below(path, payload_shared_dir) or path)

    def resolve(self, path: Path) -> Path:
        """``path`` with symlinks and ``..`` resolved. Raises :class:`PathError` when it lies outside all roots."""
        real = Path(os.path.realpath(path))
        self._root_of(real)
        return real

    def open_readable(self, path: Path) -> int:
        """A read-only descriptor of a regular file inside a root; the caller closes it.

        A symlink is followed only to a target inside a root. The resolved path is then walked from the root without
        following any link, so that a file swapped after the check is refused. Raises :class:`PathError`.
        """
        real = self.resolve(path)
        try:
            if real.is_dir():  # told before its parent is looked at: a root's own lies outside
                raise PathError("NOT_A_FILE", "is a folder")
            with self._folder(real.parent) as folder:
                if not stat.S_ISREG(os.stat(real.name, dir_fd=folder, follow_symlinks=False).st_mode):
                    raise PathError("NOT_A_FILE", "not a regular file")
                descriptor = os.open(real.name, _FILE_FLAGS, dir_fd=folder)
        except OSError as error:
            raise _translated(error) from error
        try:
            self._check_descriptor(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def check_result_path(
        self, result_file: str, payload_shared_dir: str | None, *, task_id: str, taken: Collection[Path] = ()
    ) -> Path:
        """Where the result of ``task_id`` goes: an absolute path without links, whose folder exists.

        ``taken`` are the payload's and the attachments' files. Raises ``PATH_NOT_ALLOWED`` (permanent) and, when only
        the parent folder is missing, ``RESULT_DIR_MISSING`` (transient): an unmounted share must not be filled.
        """
        try:
            path = self.rebase(result_file, payload_shared_dir)
            if not result_file.endswith(".json"):
                raise self._refused("does not end in .json", "必须以 .json 结尾")
            if "\\" in path.name:  # a name on Linux, but nobody means it as one
                raise self._refused("holds a backslash", "不能包含反斜杠")
            target = self.resolve(path.parent) / path.name
            root = self._root_of(target)
        except PathError as error:
            raise self._refused(error.reason, "不在允许的目录之内") from error
        if OWN_FOLDER in (part.casefold() for part in target.relative_to(root).parts):
            raise self._refused(f"lies in {OWN_FOLDER}/", f"不能位于 {OWN_FOLDER}/ 目录")
        if not target.parent.is_dir():
            raise _parent_missing(target)
        self._check_target(target, task_id, taken)
        return target

    def write_result(self, path: Path, data: bytes, mode: int | None = None) -> None:
        """Write the bytes of a result to a path that :meth:`check_result_path` gave: temporary, fsync, rename.

        Never follows a symlink, never makes a folder. Raises ``RESULT_DIR_MISSING`` (transient) when the folder is
        gone or cannot be written now, ``PATH_NOT_ALLOWED`` when it turned into something else.
        """
        try:
            with self._folder(path.parent) as folder:
                _replace(folder, path.name, data, mode, secrets.token_hex)
        except PathError as error:
            raise self._refused(error.reason, "不在允许的目录之内") from error
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR):
                raise _parent_missing(path) from error
            if error.errno in (errno.ELOOP, errno.EISDIR):
                raise self._refused("is a folder or a symbolic link", "是目录或符号链接") from error
            raise TransientError(
                Code.RESULT_DIR_MISSING,
                en=f"resultFile {path} cannot be written: {error.strerror}",
                zh=f"结果文件 {path} 暂时无法写入（{os_cause(error)}）",
            ) from error

    def _root_of(self, real: Path) -> Path:
        for root in self.roots:
            real_root = Path(os.path.realpath(root))
            if real.is_relative_to(real_root):
                return real_root
        raise PathError("OUTSIDE_ALLOWED_ROOTS", "lies outside the allowed roots")

    @contextmanager
    def _folder(self, real: Path) -> Iterator[int]:
        """A descriptor of a folder inside a root, reached from the root step by step without following a link."""
        root = self._root_of(real)
        descriptor = os.open(root, _FOLDER_FLAGS)
        try:
            for part in real.relative_to(root).parts:
                following = os.open(part, _FOLDER_FLAGS, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = following
            yield descriptor
        finally:
            os.close(descriptor)

    def _check_descriptor(self, descriptor: int) -> None:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise PathError("NOT_A_FILE", "not a regular file")
        with suppress(OSError):  # without /proc the walk above is the check
            self._root_of(Path(f"/proc/self/fd/{descriptor}").readlink())

    def _check_target(self, target: Path, task_id: str, taken: Collection[Path]) -> None:
        if os.path.realpath(target) in {os.path.realpath(path) for path in taken}:
            raise self._refused("is the payload or an attachment", "与任务文件或附件是同一个文件")
        try:
            found = target.lstat()
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._refused(f"cannot be looked at: {error.strerror}", f"无法检查：{os_cause(error)}") from error
        if stat.S_ISLNK(found.st_mode):
            raise self._refused("is a symbolic link", "不能是符号链接")
        if not self._holds_result_of(task_id, target):
            raise self._refused(
                f"is an existing file that is no result of {task_id}", f"已有其他文件（不是 {task_id} 的结果）"
            )

    def _holds_result_of(self, task_id: str, path: Path) -> bool:
        try:
            with os.fdopen(self.open_readable(path), "rb") as file:
                document = json.loads(file.read(MAX_EXISTING_RESULT + 1)[:MAX_EXISTING_RESULT])
        except (PathError, OSError, ValueError, RecursionError):
            return False
        return is_result_of(task_id, document)

    def _refused(self, en: str, zh: str) -> PermanentError:
        roots = ", ".join(str(root) for root in self.roots)
        return PermanentError(
            Code.PATH_NOT_ALLOWED,
            en=f"resultFile {en}; allowed: a .json file inside {roots}",
            zh=f"字段 resultFile {zh}；允许的目录：{roots}",
        )


def write_atomic(
    path: Path, data: bytes, mode: int | None = None, *, token: Callable[[int], str] = secrets.token_hex
) -> None:
    """Write a whole file of our own: ``.<name>.<random>.tmp`` in the same folder, fsync, rename, fsync of the folder.

    ``mode`` defaults to ``0666 & ~umask``. The folder must exist. Raises :class:`OSError`.
    """
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _replace(folder, path.name, data, mode, token)
    finally:
        os.close(folder)


def _replace(folder: int, name: str, data: bytes, mode: int | None, token: Callable[[int], str]) -> None:
    temporary = f".{os.fsencode(name)[:200].decode(errors='ignore')}.{token(8)}.tmp"  # a name has at most 255 bytes
    # created with 0666: the kernel takes the umask off, and asking for the umask would change it for other threads
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, 0o666, dir_fd=folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise
    os.fsync(folder)


def _below(path: str, payload_shared_dir: str | None) -> str | None:
    """The part of ``path`` below the payload's shared directory, by the letters: that folder may not exist here."""
    if not (payload_shared_dir and payload_shared_dir.startswith("/") and path.startswith("/")):
        return None
    theirs = posixpath.normpath("/" + payload_shared_dir.lstrip("/"))
    wanted = posixpath.normpath("/" + path.lstrip("/"))
    if theirs == "/":
        return None  # "below /" is true of every path and tells nothing
    return wanted[len(theirs) + 1 :] if wanted.startswith(theirs + "/") else None


def _below_on_windows(path: str, payload_shared_dir: str | None) -> str:
    """The same for a backend whose share is ``D:\\share`` or ``\\\\host\\share``; its other drives are nowhere here."""
    theirs = payload_shared_dir or ""
    wanted = PureWindowsPath(theirs, path)
    if not _OF_WINDOWS.match(theirs) or not wanted.is_relative_to(theirs):
        raise PathError("OUTSIDE_ALLOWED_ROOTS", "is a Windows path that is not below the payload's sharedDir")
    return wanted.relative_to(theirs).as_posix()


def _translated(error: OSError) -> PathError:
    if error.errno == errno.ELOOP:
        return PathError("OUTSIDE_ALLOWED_ROOTS", "became a symbolic link while it was opened")
    if error.errno == errno.EISDIR:
        return PathError("NOT_A_FILE", "is a folder")
    return PathError("NOT_FOUND", error.strerror or "cannot be opened")


def _parent_missing(target: Path) -> TransientError:
    return TransientError(
        Code.RESULT_DIR_MISSING,
        en=f"the folder of resultFile {target} does not exist; is the share mounted?",
        zh=f"结果文件 {target} 所在目录不存在，请检查共享目录是否已挂载",
    )
