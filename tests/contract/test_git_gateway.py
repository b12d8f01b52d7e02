"""The git gateway against a real git server on loopback: secrets, hostile input, reading, pushing."""

from __future__ import annotations

import logging
import os
import re
import signal
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tasks.errors import Code, JobError, PermanentError, TransientError
from tasks.ports import RepoRef
from tests.git_world import (
    AUTHOR,
    PAGES,
    REPO,
    SECRETS,
    TOKEN,
    child_commit,
    command_of,
    head_of,
    pipes,
    processes_below,
    zombies,
)
from worker.adapters.kb_git.git import (
    BareRepo,
    DamagedError,
    GitLimits,
    Remote,
    TreeEntry,
    remote_head,
)
from worker.adapters.kb_git.mirror import Mirror, Mirrors
from worker.adapters.kb_git.process import Done
from worker.adapters.kb_git.snapshot import GitKbReader
from worker.clock import SystemClock
from worker.demo.git_server import GitServer

# ---------------------------------------------------------------- the token


def test_the_token_is_in_no_argument_while_a_push_hangs_and_in_no_file(
    server: GitServer, repo: BareRepo, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    commit = child_commit(repo, head_of(server))
    server.faults.push_delay_s = 600.0
    pushed: list[str] = []
    pushing = threading.Thread(target=lambda: pushed.append(repo.push(commit, "main").status))
    pushing.start()
    seen = []
    while pushing.is_alive():
        seen += [command_of(process) for process in processes_below(os.getpid())]
        if any("remote-http" in line for line in seen):
            server.faults.push_delay_s = 0.2
        time.sleep(0.05)
    assert pushed == ["accepted"]
    texts = [*seen, caplog.text]
    for root in (repo.path, server.root):
        texts += [file.read_text("utf-8", "replace") for file in root.rglob("*") if file.is_file()]
    assert [secret for secret in SECRETS for text in texts if secret in text] == []


@pytest.mark.parametrize("user", ["bot", "other"])
@pytest.mark.parametrize("trouble", ["auth", "missing", "down", "redirect", "refused", "slow"])
def test_no_exception_shows_the_token_and_each_names_the_host(
    server: GitServer, tmp_path: Path, trouble: str, user: str
) -> None:
    token, name, limits = TOKEN, REPO.name, GitLimits()
    if trouble == "auth":
        token += "-wrong"
    elif trouble == "missing":
        name = "nothing"
    elif trouble == "down":
        server.faults.status = 503
    elif trouble == "redirect":
        server.faults.redirect_to = "http://127.0.0.1:1"
    elif trouble == "refused":
        server.faults.status = 403
    else:
        server.faults.delay_s, limits = 3.0, GitLimits(lookup_s=0.3)
    if user == "other":
        server.faults.status = server.faults.status or 401
    with pytest.raises(JobError) as caught:
        remote_head(Remote(server.repo_url("team", name), user, token), limits)
    said = f"{caught.value!r} {caught.value.__cause__!r} {caught.value.en} {caught.value.zh}"
    assert not any(secret in said for secret in [*SECRETS, token])
    assert server.url.removeprefix("http://") in caught.value.en
    assert server.url.removeprefix("http://") in caught.value.zh


def test_a_token_that_the_server_repeats_is_masked(remote: Remote) -> None:
    text = f"remote: bad token {TOKEN}\nAuthorization: Basic {SECRETS[1]}\nhttps://bot:{TOKEN}@host/x {SECRETS[2]}"
    assert not any(secret in remote.redact(text) for secret in SECRETS)
    assert TOKEN not in repr(remote)


def test_the_header_goes_to_the_repository_url_alone(remote: Remote) -> None:
    keys = [key for key in remote.config() if "extraHeader" in key]
    assert keys == [f"http.{remote.url}.extraHeader"]


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    "url",
    [
        "ext::sh -c id", "ext::id", "file:///tmp/x", "/tmp/x", "ssh://git@host/x.git", "git@host:x.git", "git://host/x",
        "--upload-pack=id", "https://", "https://bot:pw@host/x.git", "https://host/x.git?a=b", "https://host/x\n.git",
        "http://host:99999/x", "",
    ],
)  # fmt: skip
def test_other_urls_are_refused_before_any_process_starts(url: str) -> None:
    with pytest.raises(PermanentError) as caught:
        Remote(url, "bot", TOKEN)
    assert caught.value.code == Code.KB_NOT_FOUND
    assert "GITEA_URL" in caught.value.en


@pytest.mark.parametrize(
    "revision", ["HEAD", "main", "--output=/tmp/x", "-h", "1" * 39, "A" * 40, "1" * 40 + "^", "1" * 40 + "\n"]
)
def test_only_full_hex_ids_are_revisions(repo: BareRepo, revision: str) -> None:
    good = "1" * 40
    calls: list[Callable[[], object]] = [
        lambda: repo.has(revision), lambda: repo.read(revision), lambda: repo.blob_id(revision, "a.md"),
        lambda: repo.tree(revision), lambda: repo.changes(good, revision), lambda: repo.log(revision),
        lambda: repo.log(good, since=revision), lambda: repo.is_ancestor(revision, good),
        lambda: repo.push(revision, "main"), lambda: repo.fetch_commit(revision),
        lambda: repo.write_commit(good, [revision], "x", AUTHOR), lambda: list(repo.read_many([revision])),
        lambda: repo.write_tree([TreeEntry("100644", "blob", revision, "a")]),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(ValueError, match="hex"):
            call()


@pytest.mark.parametrize(
    "branch",
    ["--force", "-x", "a..b", "a b", "a:b", "+a", "a~1", "a^", "a.lock", "/a", "a/", "", "a\nb", "@{u}", ".a", "a*"],
)
def test_odd_branch_names_are_refused(repo: BareRepo, branch: str) -> None:
    if branch == "+a":  # a legal name: it stands after refs/heads/, so the plus says nothing
        assert repo.push(head_of_clone(repo), branch).status == "accepted"
        return
    for call in (lambda: repo.fetch(branch), lambda: repo.push("1" * 40, branch)):
        with pytest.raises(ValueError, match="branch"):
            call()


def head_of_clone(repo: BareRepo) -> str:
    return repo.fetch("main")


def file_at(repo: BareRepo, commit: str, path: str) -> bytes | None:
    blob = repo.blob_id(commit, path)
    return repo.read(blob) if blob else None


@pytest.mark.parametrize(
    "path", ["--help", "-h", "../a.md", "./a.md", "/a.md", "", "a.md\n1", "nothing.md", ":(top)a.md", "a.md\0"]
)
def test_paths_are_names_and_never_options(repo: BareRepo, path: str) -> None:
    commit = head_of_clone(repo)
    assert file_at(repo, commit, path) is None
    assert file_at(repo, commit, "a.md") == b"# A\n"
    if "\0" not in path and path:
        assert repo.tree(commit, recursive=False, folder=path) == []


def test_a_redirect_is_not_followed(tmp_path: Path, server: GitServer, remote: Remote) -> None:
    with GitServer(tmp_path / "other", "bot", TOKEN) as other:
        other.create(REPO.owner, REPO.name, PAGES)
        server.faults.redirect_to = other.url
        with pytest.raises(PermanentError, match="redirect"):
            remote_head(remote)
        assert other.counts.requests == 0


def test_git_set_up_of_the_caller_does_not_reach_our_git(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, remote: Remote, server: GitServer
) -> None:
    (tmp_path / "gitconfig").write_text('[core]\n\tquotePath = true\n[url "http://127.0.0.1:1/"]\n\tinsteadOf = http\n')
    strange = {"GIT_DIR": "/nonexistent", "GIT_WORK_TREE": "/nonexistent", "GIT_INDEX_FILE": "/nonexistent/index",
               "GIT_OBJECT_DIRECTORY": str(tmp_path / "objects"), "GIT_NAMESPACE": "x", "GIT_TRACE_CURL": "1",
               "GIT_CONFIG_GLOBAL": str(tmp_path / "gitconfig"), "HOME": str(tmp_path), "GIT_ASKPASS": "/bin/false",
               "GIT_CONFIG_PARAMETERS": "'core.bare'='false'"}  # fmt: skip
    for name, value in strange.items():
        monkeypatch.setenv(name, value)
    mirror = Mirror(tmp_path / "m.git", remote, SystemClock())
    head = mirror.latest(fresh=True)
    assert head.commit == head_of(server)
    assert mirror.run(lambda repo: file_at(repo, head.commit, "a.md")) == b"# A\n"
    assert not (tmp_path / "objects").exists()
    mirror.close()


def test_the_mirror_runs_no_hook(repo: BareRepo, server: GitServer, tmp_path: Path) -> None:
    hook = repo.path / "hooks" / "pre-push"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\nexit 1\n")
    hook.chmod(0o755)
    assert repo.push(child_commit(repo, head_of(server)), "main").status == "accepted"
    assert not (tmp_path / "ran").exists()


# ---------------------------------------------------------------- reading


def test_a_thousand_reads_leave_no_zombie_and_no_descriptor(repo: BareRepo) -> None:
    commit = repo.fetch("main")
    file_at(repo, commit, "a.md")
    before, ended = pipes(), zombies()
    for _ in range(1_000):
        assert file_at(repo, commit, "a.md") == b"# A\n"
    for _ in range(20):
        repo.tree(commit)
    kept = pipes()
    assert kept <= before, "the server in this process may still have had some of its own"
    assert zombies() <= ended
    repo.close()
    assert len(kept - pipes()) == 2


def test_threads_share_one_reader(repo: BareRepo) -> None:
    blobs = {repo.write_blob(f"text {n}".encode() * (n + 1)): f"text {n}".encode() * (n + 1) for n in range(40)}
    wrong: list[str] = []

    def read_all() -> None:
        for _ in range(5):
            wrong.extend(blob for blob, data in blobs.items() if repo.read(blob) != data)
            wrong.extend(blob for blob, found in repo.read_many(list(blobs)) if not found or found.data != blobs[blob])

    threads = [threading.Thread(target=read_all) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_forked_child_reads_with_its_own_process(repo: BareRepo) -> None:
    commit = repo.fetch("main")
    assert file_at(repo, commit, "a.md") == b"# A\n"
    children = [os.fork() for _ in range(3)]
    if 0 in children:  # in a child: no pytest from here on
        ok = all(file_at(repo, commit, "a.md") == b"# A\n" for _ in range(50))
        repo.close()
        os._exit(0 if ok else 1)
    assert all(file_at(repo, commit, "a.md") == b"# A\n" for _ in range(50))
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
    assert file_at(repo, commit, "a.md") == b"# A\n"


def test_a_killed_reader_is_replaced(repo: BareRepo) -> None:
    commit = repo.fetch("main")
    assert file_at(repo, commit, "a.md") == b"# A\n"
    for process in processes_below(os.getpid()):
        if "cat-file" in command_of(process):
            os.kill(int(process.name), signal.SIGKILL)
    assert file_at(repo, commit, "a.md") == b"# A\n"


def test_big_and_missing_objects(repo: BareRepo) -> None:
    big = repo.write_blob(b"x" * 5_000_000)
    found = dict(repo.read_many([big, "1" * 40, big], max_bytes=10))
    assert (found[big].data, found[big].size, found["1" * 40]) == (b"x" * 10, 5_000_000, None)  # type: ignore[union-attr]
    assert len(repo.read(big)) == 5_000_000
    with pytest.raises(DamagedError):
        repo.read("1" * 40)
    with pytest.raises(PermanentError) as caught:
        repo.tree("1" * 40)
    assert caught.value.code == Code.COMMIT_GONE


def test_trees_logs_and_differences(repo: BareRepo, server: GitServer) -> None:
    first = repo.fetch("main")
    name = '概念/带 空格 🙂 "x".md'
    second = server.commit(
        REPO.owner, REPO.name, {name: b"1", "b/c.md": b"2"}, message="x\n\nTask-Id: t-1\nTask-Id: t-2\n"
    )
    assert repo.fetch("main") == second
    assert sorted(entry.path for entry in repo.changes(first, second)) == sorted(["b/c.md", name])
    assert name in [entry.path for entry in repo.tree(second)]
    assert [entry.path for entry in repo.tree(second, recursive=False, folder="b")] == ["b/c.md"]
    assert [(entry.id, entry.task_ids) for entry in repo.log(second, since=first)] == [(second, ("t-1", "t-2"))]
    assert [entry.id for entry in repo.log(second, grep="Task-Id: t-2")] == [second]
    assert (repo.is_ancestor(first, second), repo.is_ancestor(second, first)) == (True, False)


def test_repositories_with_long_ids_work(tmp_path: Path, server: GitServer) -> None:
    server.create("team", "long", PAGES, object_format="sha256")
    reader = GitKbReader(Mirrors(tmp_path / "cache", server.url, "bot", TOKEN, SystemClock()))
    snapshot = reader.latest(RepoRef("team", "long"), fresh=True)
    assert len(snapshot.commit) == 64
    assert reader.at(RepoRef("team", "long"), snapshot.commit).read("a.md") == "# A\n"
    reader.close()


# ---------------------------------------------------------------- pushing


def test_push_outcomes_are_told_apart(repo: BareRepo, server: GitServer, tmp_path: Path, remote: Remote) -> None:
    base = repo.fetch("main")
    ours = child_commit(repo, base)
    theirs = server.commit(REPO.owner, REPO.name, {"their.md": b"x"})
    assert repo.push(ours, "main").status == "stale"
    assert head_of(server) == theirs
    ours = child_commit(repo, repo.fetch("main"))
    server.protect(REPO.owner, REPO.name)
    refused = repo.push(ours, "main")
    assert (refused.status, "protected branch" in refused.reason) == ("refused", True)
    server.unprotect(REPO.owner, REPO.name)
    server.faults.drop_pushes = 1
    assert repo.push(ours, "main").status == "unknown"
    assert head_of(server) == ours
    assert repo.push(ours, "main").status == "accepted"
    slow = BareRepo(repo.path, remote, GitLimits(transfer_s=0.4))
    server.faults.push_delay_s = 3.0
    assert slow.push(child_commit(repo, ours, text=b"2"), "main").status == "unknown"
    wrong = BareRepo(repo.path, Remote(remote.url, "bot", "wrong"))
    with pytest.raises(PermanentError) as caught:
        wrong.push(ours, "main")
    assert caught.value.code == Code.KB_AUTH


def test_a_git_process_past_its_time_is_killed_with_its_group(server: GitServer, remote: Remote) -> None:
    server.faults.delay_s = 60.0
    began = time.monotonic()
    with pytest.raises(TransientError) as caught:
        remote_head(remote, GitLimits(lookup_s=0.5))
    assert time.monotonic() - began < 60
    assert caught.value.code == Code.KB_UNREACHABLE
    assert "0.5 s" in caught.value.en
    assert [p for p in processes_below(os.getpid()) if "ls-remote" in command_of(p)] == []


def test_packs_of_many_fetches_are_rolled_up_and_nothing_is_lost(server: GitServer, repo: BareRepo) -> None:
    commits = [repo.fetch("main")]
    for n in range(6):
        commits.append(server.commit(REPO.owner, REPO.name, {f"n{n}.md": b"x"}))
        repo.fetch("main")
    lost = child_commit(repo, commits[0], text=b"unreachable")
    packs = repo.pack_count()
    repo.compact()
    assert repo.pack_count() < packs
    assert all(repo.has(commit) and repo.tree(commit) for commit in [*commits, lost])


@pytest.mark.parametrize("reason", ["No space left on device", "Permission denied", "Read-only file system"])
def test_trouble_of_the_machine_is_no_damage_of_the_mirror(repo: BareRepo, reason: str) -> None:
    error = repo._broken(Done(128, b"", f"error: unable to write file: {reason}\n"))
    assert isinstance(error, TransientError)
    assert "KBW_CACHE_DIR" in error.en
    assert isinstance(repo._broken(Done(128, b"", "fatal: packed object is corrupt\n")), DamagedError)


def test_error_texts_have_no_line_breaks(remote: Remote) -> None:
    assert not re.search(r"[\r\n\t]", remote.redact("a\n\tb\r\nc"))


class _LoginPage(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.server.page)  # type: ignore[attr-defined]

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize("page", [b"", b"<html>Sign in</html>"])
def test_a_login_page_is_no_empty_knowledge_base(page: bytes) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _LoginPage)
    server.page = page  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        with pytest.raises(TransientError, match="not as a git server") as caught:
            remote_head(Remote(f"http://127.0.0.1:{server.server_address[1]}/team/kb.git", "bot", "secret-token"))
        assert caught.value.code == Code.KB_UNREACHABLE
    finally:
        server.shutdown()
        server.server_close()
