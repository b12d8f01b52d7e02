"""What the git tests stand on: a server with one repository, a clone of it, a mirror; no test in here."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks.ports import RepoRef
from worker.adapters.kb_git.git import (
    BareRepo,
    Remote,
    Signature,
    TreeEntry,
)
from worker.adapters.kb_git.mirror import Mirror
from worker.clock import SystemClock
from worker.demo.git_server import GitServer

TOKEN = "tok/en+secret-4711"
SECRETS = [TOKEN, base64.b64encode(f"bot:{TOKEN}".encode()).decode(), "tok%2Fen%2Bsecret-4711"]
REPO = RepoRef("team", "kb")
AUTHOR = Signature("kbw", "kbw@example.invalid", 1_700_000_000)
PAGES = {"catalog.json": b"{}", "a.md": b"# A\n", "\xe6.md".encode("latin-1").decode("latin-1"): b"x"}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[GitServer]:
    with GitServer(tmp_path / "server", "bot", TOKEN) as running:
        running.create(REPO.owner, REPO.name, PAGES)
        yield running


@pytest.fixture
def remote(server: GitServer) -> Remote:
    return Remote(server.repo_url(REPO.owner, REPO.name), "bot", TOKEN)


@pytest.fixture
def repo(tmp_path: Path, remote: Remote) -> Iterator[BareRepo]:
    clone = BareRepo.clone(tmp_path / "clone.git", remote)
    yield clone
    clone.close()


@pytest.fixture
def mirror(tmp_path: Path, remote: Remote) -> Iterator[Mirror]:
    found = Mirror(tmp_path / "mirror.git", remote, SystemClock())
    yield found
    found.close()


def head_of(server: GitServer, branch: str = "main") -> str:
    return server.head(REPO.owner, REPO.name, branch)


def child_commit(repo: BareRepo, parent: str, name: str = "new.md", text: bytes = b"new") -> str:
    entries = [entry for entry in repo.tree(parent, recursive=False) if entry.path != name]
    tree = repo.write_tree([*entries, TreeEntry("100644", "blob", repo.write_blob(text), name)])
    return repo.write_commit(tree, [parent], "kbw: 1 QA page(s)\n\nTask-Id: query-1-2\n", AUTHOR)


def descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def processes_below(pid: int) -> list[Path]:
    found = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in children.read_text().split():
            found += [Path(f"/proc/{child}"), *processes_below(int(child))]
    return found
