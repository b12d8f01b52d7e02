"""The generations of one repository's index on this machine: finds, builds, publishes, mends and removes them.

One process builds under a file lock, into a temporary name that is then renamed; all others map what is there. A
generation never changes, so a reader may go on with one that is removed meanwhile.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from tasks.errors import Code, TransientError
from worker.adapters.kb_git.file_lock import FileLock
from worker.adapters.kb_git.generation import JOINED, PAGES, SCHEMA, Generation
from worker.adapters.kb_git.git import check_hex
from worker.adapters.kb_git.index_build import build
from worker.adapters.kb_git.mirror import Mirror
from worker.adapters.kb_git.page_index import BrokenIndexError, PageIndexWriter, segments

KEPT = 5
"""Generations on disk: jobs are pinned to one of the last few commits; older ones are built again when asked for."""

_OPEN = 4
_BUILD_WAIT_S = 600.0
_BASES = 3
_BUILDING = ".building-"
_WORK = ".work-"
_WORK_S = 600.0
_REMOVED = ".removed-"


class IndexStore:
    """Opens the generation of a commit, building it if need be. Safe for threads and processes."""

    def __init__(self, mirror: Mirror, *, kept: int = KEPT, build_wait_s: float = _BUILD_WAIT_S) -> None:
        self.folder = mirror.path.with_name(f"{mirror.path.name}.index")
        self._mirror = mirror
        self._clock = mirror.clock
        self._kept = kept
        self._opened: OrderedDict[str, Generation] = OrderedDict()
        self._guard = threading.RLock()
        self._lock = FileLock(self.folder / "lock", mirror.clock, build_wait_s)

    def generation(self, commit: str) -> Generation:
        """The index of exactly ``commit``. Raises ``KB_UNREACHABLE`` when it cannot be had in time."""
        with self._guard:
            if commit not in self._opened:
                self._opened[commit] = self._found(commit) or self._made(commit)
            self._opened.move_to_end(commit)
            while len(self._opened) > _OPEN:
                self._opened.popitem(last=False)
            return self._opened[commit]

    def mend(self, broken: Generation) -> Generation:
        """Another generation in place of one that failed while it was read."""
        with self._guard:
            commit = broken.manifest.commit
            if self._opened.get(commit) is broken:
                del self._opened[commit]
                with self._lock.held() as is_ours:
                    if is_ours:
                        self._remove(broken.folder)
            return self.generation(commit)

    # ------------------------------------------------------------ finding

    def _found(self, commit: str) -> Generation | None:
        folder = self._place(commit)
        try:
            found = Generation(folder)
        except BrokenIndexError:
            return None
        with suppress(OSError):
            os.utime(folder)  # the last to be used is the last to be removed
        return found if found.manifest.commit == commit else None

    def _place(self, commit: str) -> Path:
        return self.folder / f"{check_hex(commit)}-v{SCHEMA}"

    # ------------------------------------------------------------ making

    def _made(self, commit: str) -> Generation:
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._lock.held() as is_ours:
            if not is_ours:
                raise TransientError(
                    Code.KB_UNREACHABLE,
                    en=f"another process has built the index {self.folder} for too long",
                    zh=f"本机另一个进程正在建立知识库索引（{self._mirror.remote.name}），请稍后重试。",
                )
            if found := self._found(commit):
                return found
            return self._build(commit)

    def _build(self, commit: str) -> Generation:
        """With the lock held: nobody else builds or removes."""
        self._sweep()
        target = self._place(commit)
        self._remove(target)  # here, and not usable
        token = self._clock.token(4)
        temporary, work = self.folder / f"{_BUILDING}{token}", self.folder / f"{_WORK}{token}"
        writer, made, base = None, None, self._neighbour()
        try:
            for neighbour in (base, None) if base else (None,):
                _clear(temporary, work)
                temporary.mkdir()
                try:
                    writer = build(self._mirror, commit, neighbour, temporary, work)
                    break
                except BrokenIndexError:
                    if neighbour is None:
                        raise
                    self._remove(neighbour.folder)
            temporary.rename(target)
            made = Generation(target, is_just_made=True)
        except (OSError, BrokenIndexError) as error:
            raise TransientError(
                Code.KB_UNREACHABLE,
                en=f"the index {self.folder} cannot be built ({error}): check the disk of KBW_CACHE_DIR",
                zh=f"本机无法建立知识库索引（{self._mirror.remote.name}），请检查 KBW_CACHE_DIR 所在磁盘。",
            ) from error
        finally:
            _clear(temporary, *([] if made and writer else [work]))
        old = [self._hide(folder) for folder in self._published()[self._kept :] if folder != target]
        threading.Thread(target=_tidy, args=(writer, target, old), name="tidy-index").start()  # no job waits for it
        return made

    def _neighbour(self) -> Generation | None:
        """The generation used last: few paths differ from it, whichever way the history goes."""
        for folder in self._published()[:_BASES]:
            with suppress(BrokenIndexError):
                found = Generation(folder)
                if self._mirror.run(lambda repo, old=found.manifest.commit: repo.has(old)):  # type: ignore[misc]
                    return found
        return None

    # ------------------------------------------------------------ removing

    def _published(self) -> list[Path]:
        """Generations of our schema, the last used first."""
        folders = [path for path in self.folder.glob(f"*-v{SCHEMA}") if not path.name.startswith(".")]
        return sorted(folders, key=_used, reverse=True)

    def _sweep(self) -> None:
        """What killed builders and other schemas left behind."""
        for path in self.folder.iterdir():
            is_rest = path.name.startswith((_BUILDING, _REMOVED))
            if path.name.startswith(_WORK):  # another process may still be joining
                is_rest = self._clock.now() - _used(path) > _WORK_S
            is_other = path.is_dir() and not path.name.startswith(".") and not path.name.endswith(f"-v{SCHEMA}")
            if is_rest or is_other:
                _clear(path)

    def _remove(self, folder: Path) -> None:
        _clear(self._hide(folder))

    def _hide(self, folder: Path) -> Path:
        """Out of sight at once, to be deleted: nobody opens half a generation."""
        away = self.folder / f"{_REMOVED}{self._clock.token(4)}"
        with suppress(OSError):
            folder.rename(away)
        return away


def _tidy(writer: PageIndexWriter | None, generation: Path, old: Iterable[Path]) -> None:
    """Delete what is ``old``; joined segments become what the next update goes on from. Killed, it costs only that."""
    _clear(*old)
    if writer:
        with suppress(OSError, BrokenIndexError):
            writer.settle()
            if segments(writer.folder) < segments(generation / PAGES):
                writer.folder.rename(generation / JOINED)
        _clear(writer.folder)


def _clear(*folders: Path) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def _used(folder: Path) -> float:
    try:
        return folder.stat().st_mtime
    except OSError:
        return 0.0
