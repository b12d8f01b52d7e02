"""What the git tests stand on: one repository's content and a hidden token; no test and no fixture in here."""

from __future__ import annotations

import base64
import os
from contextlib import suppress
from pathlib import Path

from tasks.ports import RepoRef
from worker.adapters.kb_git.git import (
    BareRepo,
    Signature,
    TreeEntry,
)
from worker.demo.git_server import GitServer

TOKEN = "tok/en+secret-4711"
SECRETS = [TOKEN, base64.b64encode(f"bot:{TOKEN}".encode()).decode(), "tok%2Fen%2Bsecret-4711"]
REPO = RepoRef("team", "kb")
AUTHOR = Signature("kbw", "kbw@example.invalid", 1_700_000_000)
PAGES = {"catalog.json": b"{}", "a.md": b"# A\n", "\xe6.md".encode("latin-1").decode("latin-1"): b"x"}


def head_of(server: GitServer, branch: str = "main") -> str:
    return server.head(REPO.owner, REPO.name, branch)


def child_commit(repo: BareRepo, parent: str, name: str = "new.md", text: bytes = b"new") -> str:
    entries = [entry for entry in repo.tree(parent, recursive=False) if entry.path != name]
    tree = repo.write_tree([*entries, TreeEntry("100644", "blob", repo.write_blob(text), name)])
    return repo.write_commit(tree, [parent], "kbw: 1 QA page(s)\n\nTask-Id: query-1-2\n", AUTHOR)


def pipes() -> set[str]:
    """The pipes this process has open: sockets of servers that other tests left come and go by themselves."""
    return {end for end in map(_target, Path("/proc/self/fd").iterdir()) if end.startswith("pipe:")}


def _target(descriptor: Path) -> str:
    try:
        return str(descriptor.readlink())
    except OSError:
        return ""


def processes_below(pid: int) -> list[Path]:
    found = []
    with suppress(OSError):  # it ended meanwhile, or a thread of it did
        for thread in list(Path(f"/proc/{pid}/task").iterdir()):
            with suppress(OSError):
                for child in (thread / "children").read_text().split():
                    found += [Path(f"/proc/{child}"), *processes_below(int(child))]
    return found


def command_of(process: Path) -> str:
    """Its command line; "" when it is gone."""
    try:
        return (process / "cmdline").read_text()
    except OSError:
        return ""


def zombies() -> set[Path]:
    """Children that ended and that nobody asked how. Other tests may have left some: compare with those before."""
    return {process for process in processes_below(os.getpid()) if _state(process) == "Z"}


def _state(process: Path) -> str:
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""
