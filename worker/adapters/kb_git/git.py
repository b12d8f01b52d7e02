"""The one gateway to git: every git process starts here, with a fixed environment; must not know what a page is.

GitPython starts the processes. Its dynamic calls guard neither options nor revisions, so sub-commands and options are
constants here, revisions are full hex ids, refs are checked, and the token travels only in the environment of the
child, scoped to the base URL (never in argv, a URL, a config file, a log line or an exception).
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tasks.errors import Code, JobError, PermanentError, TransientError
from worker.adapters.kb_git.cat_file import Blob, CatFile
from worker.adapters.kb_git.git_output import (
    LOG_FORMAT,
    LoggedCommit,
    TreeEntry,
    changed_entry,
    logged_commit,
    tree_entry,
)
from worker.adapters.kb_git.lookup import GitLimits, RemoteHead, check_branch, check_hex, remote_head
from worker.adapters.kb_git.process import DamagedError, Done, GitProcess
from worker.adapters.kb_git.remote import PushReport, Remote

__all__ = [
    "NULL_ID",
    "BareRepo",
    "Blob",
    "DamagedError",
    "GitLimits",
    "LoggedCommit",
    "PushReport",
    "Remote",
    "RemoteHead",
    "Signature",
    "TreeEntry",
    "check_branch",
    "check_hex",
    "remote_head",
]

NULL_ID = "0" * 40
"""Git's own name for "no commit": what an empty repository has for a head."""

HEAD_REF = "refs/kbw/head"
"""The mirror's note of what was fetched last; set only after all objects of that commit are there."""

_PATIENT = {"http.lowSpeedTime": "120"}
"""A push of kilobytes is followed by a long silence: the server unpacks a big catalog and says next to nothing."""

_DAMAGE = (
    *("unable to read", "is corrupt", "bad object", "not a git repository", "unable to find", "loose object"),
    "bad config",
)
_NOT_GIVEN = ("not our ref", "unadvertised object", "couldn't find remote ref")
_MACHINE = ("no space left", "disk quota", "permission denied", "read-only file system", "too many open files")


@dataclass(frozen=True)
class Signature:
    """Who made a commit and when (seconds since the epoch, UTC)."""

    name: str
    email: str
    time: int


class BareRepo:
    """One bare repository on disk and the remote it mirrors.

    Safe for threads (the persistent reader has a lock) and for ``fork`` (it belongs to the process that opened it).
    Errors: ``KB_UNREACHABLE`` (transient), ``KB_AUTH``, ``KB_NOT_FOUND`` for the remote; ``COMMIT_GONE`` for an object
    that is not here; :class:`DamagedError` when the repository on disk cannot be used.
    """

    def __init__(self, path: Path, remote: Remote, limits: GitLimits | None = None) -> None:
        self.path = path
        self.remote = remote
        self._limits = limits or GitLimits()
        self._process = GitProcess(remote, path)
        self._reader = CatFile(self._open_reader, self._limits.local_s)

    @classmethod
    def clone(cls, path: Path, remote: Remote, limits: GitLimits | None = None) -> BareRepo:
        """A full bare clone (never shallow: ancestor checks need the history) into ``path``, which must not exist."""
        limits = limits or GitLimits()
        process = GitProcess(remote, None)
        done = process.run(
            ["clone", "--bare", "--quiet", "--no-tags", "--template=", "--", remote.url, str(path)],
            limits.transfer_s,
        )
        if done.status != 0:
            raise remote.error(done.stderr)
        return cls(path, remote, limits)

    def close(self) -> None:
        """End the persistent reader; the next read opens a new one."""
        self._reader.close()

    # ------------------------------------------------------------ the remote

    def remote_head(self) -> RemoteHead:
        """The remote's default branch and commit, asked now."""
        return remote_head(self.remote, self._limits)

    def fetch(self, branch: str) -> str:
        """Bring all of ``branch`` here and return its commit. Nothing is ever pruned: pinned commits stay readable."""
        self._check_fetch(self._run_fetch(f"+refs/heads/{check_branch(branch)}:{HEAD_REF}"))
        return self.fetched()

    def fetch_commit(self, commit: str) -> bool:
        """Bring one commit here that no branch holds any more; ``False`` when the server does not give it out."""
        done = self._run_fetch(f"+{check_hex(commit)}:refs/kbw/pins/{commit}")
        if done.status != 0 and _shows(done.stderr, _NOT_GIVEN):
            return False
        self._check_fetch(done)
        return True

    def _run_fetch(self, spec: str) -> Done:
        options = ["--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance", "--no-recurse-submodules"]
        return self._process.run(["fetch", *options, "--", self.remote.url, spec], self._limits.transfer_s)

    def _check_fetch(self, done: Done) -> None:
        if done.status != 0:
            raise self._broken(done) if _shows(done.stderr, _DAMAGE) else self.remote.error(done.stderr)

    def fetched(self) -> str:
        """The commit of the last complete fetch, ``""`` when there was none."""
        done = self._process.run(["for-each-ref", "--format=%(objectname)", HEAD_REF], self._limits.local_s)
        if done.status != 0:
            raise self._broken(done)
        return done.text.strip()

    def push(self, commit: str, branch: str, *, small_window: bool = True) -> PushReport:
        """Fast-forward ``branch`` to ``commit``; never forced: the push is the lock (DESIGN §1.4).

        ``small_window`` keeps git from looking for deltas; those that are in a pack already are sent as they are (with
        a window of 0 it would not even look which objects the server has to make them of).
        """
        spec = f"{check_hex(commit)}:refs/heads/{check_branch(branch)}"
        extra = {**_PATIENT, **({"pack.window": "1"} if small_window else {})}
        try:
            done = self._push([], spec, extra)
        except TransientError as error:  # killed at its time limit: the server may have taken it
            return PushReport("unknown", error.en)
        if done.status != 0 and _shows(_said_here(done.stderr), _DAMAGE):
            raise self._broken(done)
        report = self.remote.push_report(done.status, done.text, done.stderr)
        if report.status == "accepted":
            # all its objects are here: the next look at the remote has nothing to fetch (failing costs only that fetch)
            self._process.run(["update-ref", HEAD_REF, commit], self._limits.local_s)
        return report

    def may_push(self, commit: str, branch: str) -> PushReport:
        """Ask the server whether it would let us push, sending nothing (protected branches show only in earnest)."""
        spec = f"{check_hex(commit)}:refs/heads/{check_branch(branch)}"
        done = self._push(["--dry-run"], spec, {})
        return self.remote.push_report(done.status, done.text, done.stderr)

    def _push(self, options: Sequence[str], spec: str, config: Mapping[str, str]) -> Done:
        fixed = ["push", "--porcelain", "--no-verify", "--no-signed", "--no-follow-tags", *options]
        return self._process.run([*fixed, "--", self.remote.url, spec], self._limits.transfer_s, config=config)

    # ------------------------------------------------------------ reading

    def has(self, commit: str) -> bool:
        """Whether ``commit`` is a commit that is here."""
        found = self._reader.read(check_hex(commit), 0)
        return found is not None and found.kind == "commit"

    def read(self, object_id: str, max_bytes: int | None = None) -> bytes:
        """The bytes of a blob that a tree names (at most the first ``max_bytes``): it must be here."""
        found = self._reader.read(check_hex(object_id), max_bytes)
        if found is None:
            raise DamagedError(f"object {object_id} is missing")
        return found.data

    def read_many(self, object_ids: Sequence[str], max_bytes: int | None = None) -> Iterator[tuple[str, Blob | None]]:
        """Each blob in order, ``None`` for one that is not here; requests are sent ahead of the replies."""
        return self._reader.read_many([check_hex(item) for item in object_ids], max_bytes)

    def blob_id(self, commit: str, path: str) -> str:
        """The id of the file at ``path``, ``""`` when there is none."""
        if not _is_name(path):
            return ""
        found = self._reader.read(f"{check_hex(commit)}:{path}", 0)
        return found.id if found and found.kind == "blob" else ""

    def tree(self, commit: str, *, recursive: bool = True, folder: str = "") -> list[TreeEntry]:
        """The entries at ``commit`` in git's order: all files, or only the direct entries of ``folder``.

        Raises ``COMMIT_GONE`` when the commit is not here; a folder that is not there has no entries.
        """
        args = ["ls-tree", "-z", "--full-tree", *(["-r"] if recursive else []), "--end-of-options", check_hex(commit)]
        if folder and not _is_name(folder):
            return []
        if folder:
            args += ["--", f"{folder}/"]
        return [tree_entry(line) for line in self._lines(args, commit)]

    def entries(self, commit: str, paths: Sequence[str]) -> list[TreeEntry]:
        """The entries of ``paths`` (files, or folders as such) at ``commit``, as far as they are there."""
        named = [path for path in paths if _is_name(path)]
        if not named:
            return []
        args = ["ls-tree", "-z", "--full-tree", "--end-of-options", check_hex(commit), "--", *named]
        return [tree_entry(line) for line in self._lines(args, commit)]

    def changes(self, old: str, new: str) -> list[TreeEntry]:
        """What ``new`` has at each path that differs from ``old``; a path that is gone has kind ``gone``."""
        args = ["diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", "--end-of-options"]
        fields = iter(self._lines([*args, check_hex(old), check_hex(new)], new))
        return [changed_entry(facts, path) for facts, path in zip(fields, fields, strict=True)]

    def log(self, tip: str, *, since: str = "", limit: int = 10_000, grep: str = "") -> list[LoggedCommit]:
        """Commits reachable from ``tip`` and not from ``since``, newest first, with their ``Task-Id`` trailers.

        ``grep`` keeps only commits whose message holds that text literally.
        """
        args = ["log", "-z", f"--max-count={int(limit)}", LOG_FORMAT]
        if grep:
            args += ["--fixed-strings", f"--grep={grep}"]
        args += ["--end-of-options", check_hex(tip)]
        if since:
            args.append(f"^{check_hex(since)}")
        return [logged_commit(line) for line in self._lines([*args, "--"], tip)]

    def is_ancestor(self, old: str, new: str) -> bool:
        """Whether ``old`` is ``new`` or lies in its history; ``False`` when either is not here."""
        done = self._process.run(
            ["merge-base", "--is-ancestor", "--end-of-options", check_hex(old), check_hex(new)], self._limits.local_s
        )
        return done.status == 0

    # ------------------------------------------------------------ writing objects

    def write_blob(self, data: bytes) -> str:
        """Store ``data``; its id."""
        return self._id(["hash-object", "-w", "-t", "blob", "--stdin", "--no-filters"], data)

    def write_tree(self, entries: Sequence[TreeEntry]) -> str:
        """Store one level of a tree (``path`` is a plain name); git sorts the entries. The tree's id."""
        lines = []
        for entry in entries:
            if not entry.path or any(sign in entry.path for sign in "/\0"):
                raise ValueError("a tree entry needs a plain name")
            lines.append(f"{entry.mode} {entry.kind} {check_hex(entry.id)}\t{entry.path}")
        text = "".join(f"{line}\0" for line in lines)
        return self._id(["mktree", "-z"], text.encode("utf-8", "surrogateescape"))

    def write_commit(self, tree: str, parents: Sequence[str], message: str, author: Signature) -> str:
        """Store a commit with ``author`` as committer too; equal arguments give an equal id."""
        args = ["commit-tree", "--no-gpg-sign", "-F", "-"]
        for parent in parents:
            args += ["-p", check_hex(parent)]
        stamp = f"@{int(author.time)} +0000"
        who = {
            "GIT_AUTHOR_NAME": author.name,
            "GIT_AUTHOR_EMAIL": author.email,
            "GIT_AUTHOR_DATE": stamp,
            "GIT_COMMITTER_NAME": author.name,
            "GIT_COMMITTER_EMAIL": author.email,
            "GIT_COMMITTER_DATE": stamp,
        }
        return self._id([*args, check_hex(tree)], message.encode(), who)

    # ------------------------------------------------------------ care

    def pack_count(self) -> int:
        """Packs on disk: every fetch adds one."""
        return sum(1 for _ in (self.path / "objects" / "pack").glob("*.pack"))

    def loose_count(self) -> int:
        """Loose objects, estimated from one of their 256 folders as git itself does."""
        return 256 * sum(1 for _ in (self.path / "objects" / "17").glob("[0-9a-f]*"))

    def compact(self) -> None:
        """Roll small packs and loose objects into bigger packs. Unreachable ones stay: a pinned commit may need them.

        No delta search: catalogs of many MB would cost minutes.
        """
        args = ["repack", "--geometric=2", "-d", "-q", "--window=0"]
        done = self._process.run(args, self._limits.transfer_s)
        if done.status != 0:
            raise self._broken(done)

    def drop_stray_locks(self, now: float) -> None:
        """Locks on our refs that are too old to be held: a git process that was killed leaves its own for ever."""
        for lock in (self.path / "refs" / "kbw").rglob("*.lock"):
            with suppress(FileNotFoundError):
                if now - lock.stat().st_mtime > self._limits.local_s:
                    lock.unlink()

    def gone(self, object_id: str) -> PermanentError:
        """The error for an object that cannot be had any more."""
        where = f"{self.remote.name}@{object_id[:12]}"
        return PermanentError(
            Code.COMMIT_GONE,
            en=f"{where} is neither in the mirror nor at {self.remote.host}: history was rewritten; start the job anew",
            zh=f"知识库版本 {where} 已不存在（历史被改写），请重新提问。",
        )

    def _open_reader(self) -> subprocess.Popen[bytes]:
        return self._process.open(["cat-file", "--batch"])

    def _lines(self, args: Sequence[str], revision: str) -> list[bytes]:
        done = self._process.run(args, self._limits.local_s)
        if done.status != 0:
            if not self.has(revision):
                raise self.gone(revision)
            raise self._broken(done)
        return [line for line in done.stdout.split(b"\0") if line]

    def _id(self, args: Sequence[str], data: bytes, env: Mapping[str, str] | None = None) -> str:
        done = self._process.run(args, self._limits.local_s, data=data, env=env)
        if done.status != 0:
            raise self._broken(done)
        return check_hex(done.text.strip())

    def _broken(self, done: Done) -> JobError | DamagedError:
        """A full disk or missing rights are not the repository's fault: cloning anew would not help."""
        reason = self.remote.redact(done.stderr)
        if _shows(done.stderr, _MACHINE):
            return TransientError(
                Code.KB_UNREACHABLE,
                en=f"the mirror {self.path} cannot be used: {reason}; check the disk of KBW_CACHE_DIR",
                zh="本机知识库镜像暂不可用，请检查 KBW_CACHE_DIR 所在磁盘。",
            )
        return DamagedError(reason)


def _is_name(path: str) -> bool:
    """Whether git takes ``path`` for a plain name: `./x` is relative to a folder, a line break a second question."""
    parts = path.split("/")
    return not any(sign in path for sign in "\n\r\0") and not any(part in ("", ".", "..") for part in parts)


def _said_here(stderr: str) -> str:
    """What git itself complains of, without what the server says: its damage is not ours."""
    return "\n".join(line for line in stderr.splitlines() if not line.startswith(("remote:", "error: remote ")))


def _shows(stderr: str, signs: Sequence[str]) -> bool:
    said = stderr.lower()
    return any(sign in said for sign in signs)
