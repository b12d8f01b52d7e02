"""What a remote has, asked without a repository on disk; and which revisions and branches may be named at all."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tasks.errors import Code, PermanentError
from worker.adapters.kb_git.process import GitProcess
from worker.adapters.kb_git.remote import Remote

_HEX = re.compile(r"(?:[0-9a-f]{40}|[0-9a-f]{64})\Z")
_BRANCH = re.compile(r"(?![-/.])(?!.*(?:\.\.|//|@\{|\.lock(?:/|\Z)|/\.|\.\Z|/\Z))[^\x00-\x20\x7f~^:?*\[\\]+\Z")


@dataclass(frozen=True)
class GitLimits:
    """Seconds that one git process may live: a look at the remote, a transfer, work on the mirror alone."""

    lookup_s: float = 30.0
    transfer_s: float = 600.0
    local_s: float = 60.0


@dataclass(frozen=True)
class RemoteHead:
    """The remote's default branch (``main``, no prefix) and its commit; both ``""`` when the repository is empty."""

    branch: str
    commit: str


def check_hex(revision: str) -> str:
    """``revision`` if it is a full hex id; anything else (``HEAD``, ``--option``, ``main^``) is a ``ValueError``."""
    if not _HEX.match(revision):
        raise ValueError("a revision must be 40 or 64 lower-case hex digits")
    return revision


def check_branch(branch: str) -> str:
    """``branch`` if it can stand after ``refs/heads/`` (git-check-ref-format), else ``ValueError``."""
    if not _BRANCH.match(branch):
        raise ValueError("not a branch name")
    return branch


def remote_head(remote: Remote, limits: GitLimits | None = None) -> RemoteHead:
    """The default branch of ``remote`` and its commit, asked now, without any repository on disk.

    A default branch that was deleted or renamed on the server falls back to the only branch, ``main`` or ``master``.
    """
    limits = limits or GitLimits()
    args = ["ls-remote", "--quiet", "--symref", "--", remote.url, "HEAD", "refs/heads/*"]
    done = GitProcess(remote, None).run(args, limits.lookup_s)
    if done.status != 0:
        raise remote.error(done.stderr)
    heads, head = _advertised(done.text)
    if not heads:
        _check_speaks_git(remote, args, limits)
        return RemoteHead("", "")
    branch = next((name for name in (head, "main", "master") if name in heads), None)
    if branch is None and len(heads) == 1:
        branch = next(iter(heads))
    if branch is None:
        raise PermanentError(
            Code.KB_NOT_FOUND,
            en=f"{remote.name} at {remote.host} has {len(heads)} branches but no default branch: set one in the server",
            zh=f"知识库 {remote.name} 没有默认分支，请在 {remote.host} 上设置默认分支。",
        )
    return RemoteHead(branch, heads[branch])


def _check_speaks_git(remote: Remote, args: list[str], limits: GitLimits) -> None:
    """Tell an empty repository from a login page: to git, any answer 200 is a server of the old kind without branches.

    Only a server that speaks the protocol leaves packets in the trace; they hold no header, so no token.
    """
    done = GitProcess(remote, None).run(args, limits.lookup_s, env={"GIT_TRACE_PACKET": "1"})
    if "packet:" not in done.stderr:
        raise remote.unreachable(
            "it answers, but not as a git server (a login page or a proxy?); check GITEA_URL",
            "有应答，但不是 Git 服务（是登录页或代理？）；请检查 GITEA_URL",
        )


def _advertised(text: str) -> tuple[dict[str, str], str]:
    """Branches with their commits, and the branch that ``HEAD`` names (of equal ones when it names only a commit)."""
    heads: dict[str, str] = {}
    head, head_commit = "", ""
    for line in text.splitlines():
        value, _, name = line.partition("\t")
        if name == "HEAD" and value.startswith("ref: refs/heads/"):
            head = value.removeprefix("ref: refs/heads/")
        elif name == "HEAD":
            head_commit = value
        elif name.startswith("refs/heads/"):
            heads[name.removeprefix("refs/heads/")] = check_hex(value)
    if not head and head_commit:
        head = next((name for name, commit in heads.items() if commit == head_commit), "")
    return heads, head
