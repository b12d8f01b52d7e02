"""Fixtures: a Redis server of our own; a git server with one repository, a clone of it, and a mirror."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.git_world import PAGES, REPO, TOKEN
from worker.adapters.job_store import EmbeddedValkey
from worker.adapters.kb_git.git import BareRepo, Remote
from worker.adapters.kb_git.mirror import Mirror
from worker.clock import SystemClock
from worker.demo.git_server import GitServer


@pytest.fixture(scope="module")
def server_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    # it need not outlive anything, and one that waits for its disk holds up its clients for seconds
    server = EmbeddedValkey(Path(tmp_path_factory.mktemp("state")), token=secrets.token_hex, fsync="no")
    yield server.start().url
    server.stop()


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
