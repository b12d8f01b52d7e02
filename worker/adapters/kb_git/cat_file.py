"""A persistent ``git cat-file --batch``: one child a process, safe for threads and fork; must not cache objects."""

from __future__ import annotations

import fcntl
import os
import select
import subprocess
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from worker.adapters.kb_git.process import DamagedError, end

_CHUNK = 1 << 20
_AHEAD = 128
"""Requests sent before the first reply is read: 128 ids fit well into one pipe buffer, so neither side can block."""


@dataclass(frozen=True)
class Blob:
    """An object as read: ``data`` may be shorter than ``size`` when a limit was given."""

    id: str
    kind: str
    size: int
    data: bytes


class CatFile:
    """Reads objects by name. Any exception in the middle of a reply closes the child: its pipe would be out of step."""

    def __init__(self, start: Callable[[], subprocess.Popen[bytes]], timeout_s: float) -> None:
        self._start = start
        self._timeout_ms = int(timeout_s * 1000)
        self._lock = threading.Lock()
        self._buffer = bytearray()
        self._child: subprocess.Popen[bytes] | None = None
        _ALL.add(self)

    def read(self, name: str, max_bytes: int | None = None) -> Blob | None:
        """The object ``name`` (one line), ``None`` when it is not here."""
        return self._ask([name], max_bytes)[0]

    def read_many(self, names: Sequence[str], max_bytes: int | None = None) -> Iterator[tuple[str, Blob | None]]:
        """Each object in order; the lock is free between chunks, so a long read does not shut others out."""
        for start in range(0, len(names), _AHEAD):
            chunk = names[start : start + _AHEAD]
            yield from zip(chunk, self._ask(chunk, max_bytes), strict=True)

    def close(self) -> None:
        """End the child, if it is ours."""
        with self._lock:
            self._drop()

    def _ask(self, names: Sequence[str], max_bytes: int | None) -> list[Blob | None]:
        request = "".join(f"{name}\n" for name in names).encode("utf-8", "surrogateescape")
        if request.count(b"\n") != len(names):
            raise ValueError("an object name is one line")
        with self._lock:
            if self._child is not None:
                with suppress(DamagedError):  # the child may have been killed meanwhile: a new one decides
                    return self._talk(request, len(names), max_bytes)
            return self._talk(request, len(names), max_bytes)

    def _talk(self, request: bytes, count: int, max_bytes: int | None) -> list[Blob | None]:
        child = self._child or self._open()
        assert child.stdin is not None
        try:
            view = memoryview(request)
            while view:
                view = view[os.write(child.stdin.fileno(), view) :]
            return [self._reply(max_bytes) for _ in range(count)]
        except BrokenPipeError as error:
            self._drop()
            raise DamagedError("git cat-file ended before it was asked") from error
        except BaseException:
            self._drop()
            raise

    def _reply(self, max_bytes: int | None) -> Blob | None:
        header = self._line().split(b" ")
        if header[-1] in (b"missing", b"ambiguous", b"submodule") or len(header) != 3:
            return None
        size = int(header[2])
        keep = size if max_bytes is None else min(size, max_bytes)
        data = self._bytes(keep)
        self._skip(size - keep + 1)  # the rest and the line break after each object
        return Blob(header[0].decode("ascii"), header[1].decode("ascii"), size, data)

    def _line(self) -> bytes:
        while (end_of_line := self._buffer.find(b"\n")) < 0:
            self._fill()
        line = bytes(self._buffer[:end_of_line])
        del self._buffer[: end_of_line + 1]
        return line

    def _bytes(self, size: int) -> bytes:
        while len(self._buffer) < size:
            self._fill()
        data = bytes(memoryview(self._buffer)[:size])
        del self._buffer[:size]
        return data

    def _skip(self, size: int) -> None:
        while size > 0:
            if not self._buffer:
                self._fill()
            step = min(size, len(self._buffer))
            del self._buffer[:step]
            size -= step

    def _fill(self) -> None:
        assert self._child is not None
        assert self._child.stdout is not None
        stream = self._child.stdout.fileno()
        poll = select.poll()
        poll.register(stream, select.POLLIN)
        if not poll.poll(self._timeout_ms):
            raise DamagedError(f"git cat-file gave no answer within {self._timeout_ms / 1000:g} s")
        data = os.read(stream, _CHUNK)
        if not data:
            raise DamagedError("git cat-file ended in the middle of a reply")
        self._buffer += data

    def _open(self) -> subprocess.Popen[bytes]:
        self._child = self._start()
        if self._child.stdout is not None:
            with suppress(OSError, AttributeError):  # not on every system, not for every user: it is only faster
                fcntl.fcntl(self._child.stdout.fileno(), fcntl.F_SETPIPE_SZ, _CHUNK)
        return self._child

    def _drop(self) -> None:
        if self._child is not None:
            end(self._child)
        self._child = None
        self._buffer.clear()

    def _forget(self) -> None:
        """After a fork: the child belongs to the parent process, the lock perhaps to a thread that is not here."""
        if self._child is not None:
            self._child.returncode = 0  # not ours to wait for
            for stream in (self._child.stdin, self._child.stdout):
                if stream is not None:
                    stream.close()
        self._lock = threading.Lock()
        self._buffer = bytearray()
        self._child = None


_ALL: weakref.WeakSet[CatFile] = weakref.WeakSet()


def _forget_all() -> None:
    for reader in list(_ALL):
        reader._forget()  # noqa: SLF001  # the fork hook is part of the class


os.register_at_fork(after_in_child=_forget_all)
