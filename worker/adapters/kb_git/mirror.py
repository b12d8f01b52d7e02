"""One bare mirror a repository and machine, shared by all processes; must not know pages, catalogs or jobs.

Beside each mirror lie a lock (held around clone, fetch and repair) and a note of the last look at the remote, so that
all processes together look at most once in ``max_age_s``.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from tasks.causes import os_cause
from tasks.errors import Code, JobError, PermanentError, TransientError
from tasks.ports import Clock, RepoRef
from worker.adapters.kb_git.file_lock import FileLock
from worker.adapters.kb_git.git import (
    NULL_ID,
    BareRepo,
    DamagedError,
    GitLimits,
    Remote,
    RemoteHead,
    Signature,
    remote_head,
)

T = TypeVar("T")

MAX_PACKS = 50
"""Packs from which on a mirror is repacked: every fetch and every commit of ours adds one."""
MAX_LOOSE = 1_000
"""Loose objects, estimated, from which on a mirror is packed (git's own automatic limit is 6,700)."""
_BESIDE_S = 10.0
"""After so long a wait for the lock a head that is here already is looked up without it."""
_CLOCK_SLACK_S = 1.0
_ODD = re.compile(r"[^A-Za-z0-9_.-]+")


@dataclass(frozen=True)
class _Look:
    """The last look at the remote: when it began, and what it found or why it failed."""

    at: float = 0.0
    branch: str = ""
    commit: str = ""
    code: str = ""
    en: str = ""
    zh: str = ""
    retryable: bool = False

    def error(self) -> JobError | None:
        if not self.code:
            return None
        kind = TransientError if self.retryable else PermanentError
        return kind(Code(self.code), en=self.en, zh=self.zh)


class Mirror:
    """The local copy of one remote repository. Safe for threads, for ``fork``, and for other processes beside it."""

    def __init__(
        self, path: Path, remote: Remote, clock: Clock, *, limits: GitLimits | None = None, max_age_s: float = 2.0
    ) -> None:
        self.path = path
        self.remote = remote
        self.clock = self._clock = clock
        self._limits = limits or GitLimits()
        self._max_age_s = max_age_s
        self._guard = threading.RLock()
        self._lock = FileLock(self._beside(".lock"), clock, 2 * self._limits.transfer_s)
        self._repo: BareRepo | None = None
        self._inode = 0

    def latest(self, *, fresh: bool) -> RemoteHead:
        """The remote's head, all its objects being here: looked up now when ``fresh``, else at most 2 s ago.

        An empty repository has the commit ``""``. Of many callers at once one looks, the others share what it found
        (a failure too), as long as that look began after they asked.
        """
        asked = self._clock.now()
        oldest = asked if fresh else asked - self._max_age_s
        if not fresh and (known := self._known(oldest)) is not None and not known.code:
            return RemoteHead(known.branch, known.commit)
        with self._lock.held(_BESIDE_S) as is_ours:
            known = self._shared_look(oldest, asked) if is_ours else self._look_beside()
        if known is None:
            with self._locked():
                known = self._shared_look(oldest, asked)
        if error := known.error():
            raise error
        return RemoteHead(known.branch, known.commit)

    def pushed(self, branch: str, commit: str, began: float) -> None:
        """Our own push, begun at ``began``, was accepted: the head is ``commit``, all its objects are here already."""
        self._note(_Look(began, branch, commit))

    def tidy(self) -> bool:
        """Roll up what our own commits left, once it is much; whether it was done.

        A commit leaves a pack, which holds the whole catalog too. Who holds the lock for a fetch goes first.
        """
        if self.run(lambda repo: repo.pack_count() <= MAX_PACKS and repo.loose_count() < MAX_LOOSE):
            return False
        with self._lock.held() as is_ours:
            if is_ours:
                self.run(lambda repo: repo.compact())
        return is_ours

    def have(self, commit: str) -> None:
        """Make sure that ``commit`` can be read here. Raises ``COMMIT_GONE`` when it cannot be had any more."""
        if commit == NULL_ID or self.run(lambda repo: repo.has(commit)):
            return
        self.latest(fresh=True)
        if self.run(lambda repo: repo.has(commit)):
            return
        with self._locked():
            if not self.run(lambda repo: repo.fetch_commit(commit)):
                raise self.run(lambda repo: repo.gone(commit))

    def run(self, action: Callable[[BareRepo], T]) -> T:
        """``action`` on the mirror; a damaged (or missing) mirror is replaced by a new clone and asked once more."""
        try:
            return action(self._opened())
        except DamagedError:
            with self._locked():
                self._replace()
        try:
            return action(self._opened())
        except DamagedError as error:
            raise TransientError(
                Code.KB_UNREACHABLE,
                en=f"the mirror {self.path} stays unusable after a new clone: {error}",
                zh=f"本机知识库镜像损坏且重新克隆后仍不可用（{self.remote.name}），请检查 KBW_CACHE_DIR。",
            ) from error

    def close(self) -> None:
        """Give back the reader's process and pipes."""
        with self._guard:
            if self._repo is not None:
                self._repo.close()
            self._repo = None

    # ------------------------------------------------------------ looking

    def _look_beside(self) -> _Look | None:
        """A look without the lock, for a head that was brought whole already; ``None`` when it was not.

        Who holds the lock for so long transfers much, or is frozen (a paused container on the same cache).
        """
        brought = self._noted().commit
        began = self._clock.now()
        try:
            head = remote_head(self.remote, self._limits)
        except JobError:
            return None
        is_here = head.commit and head.commit == brought and (self.path / "HEAD").exists()
        return _Look(began, head.branch, brought) if is_here else None

    # ------------------------------------------------------------ with the lock held

    def _shared_look(self, oldest: float, asked: float) -> _Look:
        known = self._known(oldest)
        if known is None or (known.code and known.at < asked):  # it may have been mended since
            known = self._look()
        return known

    def _look(self) -> _Look:
        began = self._clock.now()
        before = self._noted()
        try:
            head = remote_head(self.remote, self._limits)
            commit = self.run(lambda repo: _bring(repo, head, before.commit, began)) if head.commit else ""
            look = _Look(began, head.branch, commit)
        except JobError as error:
            look = _Look(began, code=error.code, en=error.en, zh=error.zh, retryable=isinstance(error, TransientError))
        self._note(look)
        return look

    def _known(self, oldest: float) -> _Look | None:
        """The noted look if it is no older than ``oldest``, not from the future, and the mirror is still there."""
        look = self._noted()
        current = oldest <= look.at <= self._clock.now() + _CLOCK_SLACK_S
        return look if current and (not look.commit or (self.path / "HEAD").exists()) else None

    def _noted(self) -> _Look:
        """The last look, however old; a note that is missing or cannot be read counts as none."""
        try:
            look = _Look(**json.loads(self._beside(".json").read_bytes()))
            return look if isinstance(look.at, int | float) else _Look()
        except (OSError, ValueError, TypeError):
            return _Look()

    def _note(self, look: _Look) -> None:
        """Raises ``KB_UNREACHABLE`` (transient) when the cache takes no file: a full disk is freed by someone."""
        target = self._beside(".json")
        temporary = self._beside(f".json.{self._clock.token(4)}.tmp")
        try:
            with temporary.open("w") as file:
                json.dump(asdict(look), file)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(target)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise TransientError(
                Code.KB_UNREACHABLE,
                en=f"{target} cannot be written: {error.strerror}; free or mend KBW_CACHE_DIR",
                zh=f"本机知识库缓存暂时不可写（{os_cause(error)}），请检查 KBW_CACHE_DIR。",
            ) from error

    # ------------------------------------------------------------ the folder

    def _opened(self) -> BareRepo:
        with self._guard:
            if self._repo is None:
                self._repo, self._inode = BareRepo(self.path, self.remote, self._limits), _inode(self.path)
            return self._repo

    def _replace(self) -> None:
        """Use what another process has put here meanwhile, else move the damaged folder away and clone."""
        with self._guard:
            seen, had = self._inode, self._repo is not None
            self.close()
            if self.path.exists():
                if not had or _inode(self.path) != seen:
                    with suppress(DamagedError):
                        self._opened()
                        return
                self._move_away()
            self._clone()

    def _move_away(self) -> None:
        """Keep the last damaged mirror for a look, not all of them."""
        for old in self.path.parent.glob(f"{self.path.name}.damaged-*"):
            shutil.rmtree(old, ignore_errors=True)
        self.path.rename(self._beside(f".damaged-{self._clock.token(4)}"))

    def _clone(self) -> None:
        """Into a temporary name, then renamed: a killed clone leaves nothing that looks like a mirror."""
        for left in self.path.parent.glob(f"{self.path.name}.clone-*"):  # the lock is ours: nobody works on it
            shutil.rmtree(left, ignore_errors=True)
        temporary = self._beside(f".clone-{self._clock.token(4)}")
        try:
            BareRepo.clone(temporary, self.remote, self._limits).close()
            temporary.rename(self.path)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def _beside(self, ending: str) -> Path:
        return self.path.with_name(self.path.name + ending)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """The machine-wide lock of this mirror; waits for as long as another process may transfer."""
        with self._lock.held() as taken:
            if not taken:
                raise TransientError(
                    Code.KB_UNREACHABLE,
                    en=f"another process has held {self.path.name}.lock in KBW_CACHE_DIR for too long",
                    zh=f"本机另一个进程长时间占用知识库镜像（{self.remote.name}），请稍后重试。",
                )
            yield


class Mirrors:
    """The mirrors of one server below one cache folder; the same :class:`Mirror` for the same repository."""

    def __init__(
        self,
        folder: Path,
        base_url: str,
        username: str,
        token: str,
        clock: Clock,
        *,
        limits: GitLimits | None = None,
        max_age_s: float = 2.0,
        allow_file: bool = False,
    ) -> None:
        self._folder = folder
        self._base_url = base_url.rstrip("/")
        self._username = username
        self._token = token
        self._clock = clock
        self._limits = limits
        self._max_age_s = max_age_s
        self._allow_file = allow_file
        self._guard = threading.Lock()
        self._known: dict[RepoRef, Mirror] = {}

    def of(self, repo: RepoRef) -> Mirror:
        """The mirror of ``repo`` (not yet cloned, perhaps)."""
        self._folder.mkdir(parents=True, exist_ok=True)  # each time: the cache may be deleted under running workers
        with self._guard:
            if repo not in self._known:
                url = f"{self._base_url}/{repo.owner}/{repo.name}.git"
                remote = Remote(url, self._username, self._token, allow_file=self._allow_file)
                self._known[repo] = Mirror(
                    self._folder / mirror_name(url), remote, self._clock, limits=self._limits, max_age_s=self._max_age_s
                )
            return self._known[repo]

    def push_problem(self, repo: RepoRef) -> str:
        """Why our token may not push to ``repo`` (English), ``""`` when it may; nothing is sent.

        Raises ``KB_UNREACHABLE`` and ``KB_NOT_FOUND``. A protected branch shows only in a real push.
        """
        mirror = self.of(repo)
        head = mirror.latest(fresh=True)
        try:
            report = mirror.run(lambda git: git.may_push(head.commit or _first_commit(git), head.branch or "main"))
        except PermanentError as error:
            if error.code is not Code.KB_AUTH:
                raise
            return error.en
        return "" if report.status == "accepted" else f"{report.status}: {report.reason}"

    def close(self) -> None:
        """Give back all readers' processes."""
        with self._guard:
            for mirror in self._known.values():
                mirror.close()


def _first_commit(repo: BareRepo) -> str:
    """A commit of nothing, to ask about an empty repository."""
    return repo.write_commit(repo.write_tree([]), [], "empty", Signature("kbw", "kbw@localhost", 0))


def mirror_name(url: str) -> str:
    """The folder of a URL's mirror: readable, and different for different URLs."""
    readable = _ODD.sub("-", urlsplit(url).path.strip("/").removesuffix(".git"))[-80:].strip("-.")
    return f"{readable}-{hashlib.sha256(url.encode()).hexdigest()[:10]}.git"


def _bring(repo: BareRepo, head: RemoteHead, before: str, now: float) -> str:
    """All objects of ``head`` into the mirror; the commit that came, which is newer if someone pushed meanwhile.

    ``before`` was brought whole by the last look. That a commit is here says nothing about its pages: a committer puts
    commits of its own here, and the remote's may lie half in a push that was cut off.
    """
    if head.commit == before and repo.has(before):
        return head.commit
    repo.drop_stray_locks(now)
    commit = repo.fetch(head.branch)
    if repo.pack_count() > MAX_PACKS:
        repo.compact()
    return commit


def _inode(path: Path) -> int:
    return path.stat().st_ino
