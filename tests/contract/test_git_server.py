"""The git server of demo and tests: real clients, many at once, and every way of sending a body."""

from __future__ import annotations

import base64
import gzip
import http.client
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pytest

from worker.demo.git_server import GitServer


@pytest.fixture
def server(tmp_path: Path) -> Iterator[GitServer]:
    with GitServer(tmp_path / "server") as running:
        yield running


def git(*args: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.defpath, "HOME": "/nonexistent", "GIT_TERMINAL_PROMPT": "0", "GIT_CONFIG_NOSYSTEM": "1"}
    identity = ["-c", "user.name=t", "-c", "user.email=t@x"]
    return subprocess.run(
        ["git", *identity, *args], cwd=cwd, env=environment, capture_output=True, text=True, timeout=300
    )


def address(server: GitServer, name: str = "kb") -> str:
    return server.repo_url("team", name).replace("http://", f"http://{server.user}:{server.token}@")


def ask(server: GitServer, path: str, body: bytes | Iterator[bytes] | None = None, **headers: str) -> tuple[int, bytes]:
    key = base64.b64encode(f"{server.user}:{server.token}".encode()).decode()
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=60)
    sent = {"Authorization": f"Basic {key}", **{name.replace("_", "-"): value for name, value in headers.items()}}
    connection.request(
        "POST" if body is not None else "GET", path, body, sent, encode_chunked=not isinstance(body, bytes)
    )
    answer = connection.getresponse()
    return answer.status, answer.read()


def test_it_starts_at_once(tmp_path: Path) -> None:
    def start() -> float:
        began = time.perf_counter()
        with GitServer(tmp_path / "fast") as server:
            assert server.url
            return time.perf_counter() - began

    assert min(start() for _ in range(5)) < 2


def test_clone_change_push_with_a_chunked_body(server: GitServer, tmp_path: Path) -> None:
    server.create("team", "kb", {"概念/带 空格 🙂.md": b"# A\n"})
    assert git("clone", address(server), str(tmp_path / "work")).returncode == 0
    (tmp_path / "work" / "big.bin").write_bytes(os.urandom(300_000))
    git("add", ".", cwd=tmp_path / "work")
    git("commit", "-m", "big", cwd=tmp_path / "work")
    pushed = git("-c", "http.postBuffer=65536", "push", "origin", "HEAD:main", cwd=tmp_path / "work")
    assert pushed.returncode == 0, pushed.stderr
    assert server.git("team", "kb", "cat-file", "-s", "main:big.bin").strip() == "300000"
    assert server.counts.pushes >= 1


@pytest.mark.parametrize("way", ["plain", "gzip", "chunked", "chunked gzip"])
def test_request_bodies_may_be_gzipped_and_chunked(server: GitServer, way: str) -> None:
    server.create("team", "kb", {"a.md": b"x"})
    head = server.head("team", "kb")
    want = f"0032want {head}\n00000009done\n".encode()
    data = gzip.compress(want) if "gzip" in way else want
    headers = {"Content_Type": "application/x-git-upload-pack-request"}
    if "gzip" in way:
        headers["Content_Encoding"] = "gzip"
    body = iter([data[:7], data[7:]]) if "chunked" in way else data
    if "chunked" in way:
        headers["Transfer_Encoding"] = "chunked"
    status, answer = ask(server, "/team/kb.git/git-upload-pack", body, **headers)
    assert status == 200
    assert b"PACK" in answer


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/team/kb.git/HEAD",
        "/team/../kb.git/info/refs",
        "/team/none.git/info/refs",
        "/team/kb.git/objects/info/packs",
    ],
)
def test_nothing_but_smart_git_is_served(server: GitServer, path: str) -> None:
    server.create("team", "kb", {"a.md": b"x"})
    assert ask(server, path)[0] == 404


def test_a_wrong_token_gets_401(server: GitServer) -> None:
    server.create("team", "kb", {"a.md": b"x"})
    path = "/team/kb.git/info/refs?service=git-upload-pack"
    assert ask(server, path, Authorization="Basic eDp5")[0] == 401
    assert ask(server, path, Authorization="Bearer x")[0] == 401
    assert ask(server, path)[0] == 200


def test_many_clients_push_at_once_and_nothing_is_lost(server: GitServer, tmp_path: Path) -> None:
    server.create("team", "kb", {"a.md": b"x"})
    failed: list[str] = []

    def push(number: int) -> None:
        work = tmp_path / f"work{number}"
        git("clone", "--quiet", address(server), str(work))
        (work / f"{number}.md").write_text("x")
        git("add", ".", cwd=work)
        git("commit", "-m", str(number), cwd=work)
        own = git("push", "origin", f"HEAD:branch-{number}", cwd=work)
        failed.extend([own.stderr] if own.returncode else [])
        for _ in range(20):
            if git("push", "origin", "HEAD:main", cwd=work).returncode == 0:
                return
            git("pull", "--rebase", "--quiet", "origin", "main", cwd=work)
        failed.append(f"{number} starved")

    threads = [threading.Thread(target=push, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    names = server.git("team", "kb", "ls-tree", "--name-only", "main").split()
    assert names == sorted(["a.md", *(f"{number}.md" for number in range(6))])


def test_it_fails_as_told(server: GitServer) -> None:
    server.create("team", "kb", {"a.md": b"x"})
    path = "/team/kb.git/info/refs?service=git-upload-pack"
    server.faults.status = 503
    assert ask(server, path)[0] == 503
    server.faults.status, server.faults.redirect_to = 0, "http://127.0.0.1:1"
    assert ask(server, path)[0] == 302
    server.faults.redirect_to = ""
    assert ask(server, path)[0] == 200


def test_a_delay_that_is_lowered_lets_go_whoever_waits(server: GitServer) -> None:
    server.create("team", "kb", {"a.md": b"x"})
    server.faults.delay_s = 600.0
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask, server, "/team/kb.git/info/refs?service=git-upload-pack")
        wait([asked], timeout=0.5)
        assert not asked.done()
        server.faults.delay_s = 0.0
        assert asked.result()[0] == 200


def test_repositories_are_made_from_folders_bundles_and_nothing(server: GitServer, tmp_path: Path) -> None:
    (tmp_path / "kb" / "qa").mkdir(parents=True)
    (tmp_path / "kb" / "qa" / "a.md").write_text("x")
    server.create("team", "folder", from_dir=tmp_path / "kb", branch="trunk")
    assert server.git("team", "folder", "ls-tree", "-r", "--name-only", "trunk").split() == ["qa/a.md"]
    bundle = tmp_path / "kb.bundle"
    server.git("team", "folder", "bundle", "create", str(bundle), "--all", "HEAD")
    server.create("team", "bundle", from_bundle=bundle)
    assert server.head("team", "bundle", "trunk") == server.head("team", "folder", "trunk")
    server.create("team", "empty")
    assert server.head("team", "empty") == ""
