"""The git gateway and the mirror against a real git server on loopback: secrets, hostile input, accidents, crowds."""

from __future__ import annotations

import base64
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tasks.errors import Code, JobError, PermanentError, TransientError
from tasks.ports import RepoRef
from worker.adapters.kb_git.git import (
    NULL_ID,
    BareRepo,
    DamagedError,
    GitLimits,
    Remote,
    Signature,
    TreeEntry,
    remote_head,
)
from worker.adapters.kb_git.mirror import Mirror, Mirrors
from worker.adapters.kb_git.process import Done
from worker.adapters.kb_git.snapshot import GitKbReader
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


# ---------------------------------------------------------------- the token


def test_the_token_is_in_no_argument_while_a_push_hangs_and_in_no_file(
    server: GitServer, repo: BareRepo, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    commit = child_commit(repo, head_of(server))
    server.faults.push_delay_s = 1.0
    pushed: list[str] = []
    pushing = threading.Thread(target=lambda: pushed.append(repo.push(commit, "main").status))
    pushing.start()
    seen = []
    while pushing.is_alive():
        for process in processes_below(os.getpid()):
            try:
                seen.append((process / "cmdline").read_text())
            except OSError:
                continue
        time.sleep(0.05)
    assert pushed == ["accepted"]
    assert any("git-remote-http" in line or "remote-http" in line for line in seen)
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
        lambda: repo.has(revision), lambda: repo.read(revision), lambda: repo.read_path(revision, "a.md"),
        lambda: repo.tree(revision), lambda: repo.changed_paths(good, revision), lambda: repo.log(revision),
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


@pytest.mark.parametrize(
    "path", ["--help", "-h", "../a.md", "./a.md", "/a.md", "", "a.md\n1", "nothing.md", ":(top)a.md", "a.md\0"]
)
def test_paths_are_names_and_never_options(repo: BareRepo, path: str) -> None:
    commit = head_of_clone(repo)
    assert repo.read_path(commit, path) is None
    assert repo.read_path(commit, "a.md") == b"# A\n"
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
    assert mirror.run(lambda repo: repo.read_path(head.commit, "a.md")) == b"# A\n"
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
    repo.read_path(commit, "a.md")
    before = descriptors()
    for _ in range(1_000):
        assert repo.read_path(commit, "a.md") == b"# A\n"
    for _ in range(20):
        repo.tree(commit)
    assert descriptors() == before
    states = [(process / "stat").read_text().rpartition(")")[2].split()[0] for process in processes_below(os.getpid())]
    assert "Z" not in states
    repo.close()
    assert descriptors() == before - 2


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
    assert repo.read_path(commit, "a.md") == b"# A\n"
    children = [os.fork() for _ in range(3)]
    if 0 in children:  # in a child: no pytest from here on
        ok = all(repo.read_path(commit, "a.md") == b"# A\n" for _ in range(50))
        repo.close()
        os._exit(0 if ok else 1)
    assert all(repo.read_path(commit, "a.md") == b"# A\n" for _ in range(50))
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
    assert repo.read_path(commit, "a.md") == b"# A\n"


def test_a_killed_reader_is_replaced(repo: BareRepo) -> None:
    commit = repo.fetch("main")
    assert repo.read_path(commit, "a.md") == b"# A\n"
    for process in processes_below(os.getpid()):
        if "cat-file" in (process / "cmdline").read_text():
            os.kill(int(process.name), signal.SIGKILL)
    assert repo.read_path(commit, "a.md") == b"# A\n"


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
    assert sorted(repo.changed_paths(first, second)) == sorted(["b/c.md", name])
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
    server.faults.delay_s = 5.0
    began = time.monotonic()
    with pytest.raises(TransientError) as caught:
        remote_head(remote, GitLimits(lookup_s=0.5))
    assert time.monotonic() - began < 3
    assert caught.value.code == Code.KB_UNREACHABLE
    assert "0.5 s" in caught.value.en
    assert [p for p in processes_below(os.getpid()) if "ls-remote" in (p / "cmdline").read_text()] == []


# ---------------------------------------------------------------- the mirror


def test_the_remote_is_looked_at_once_in_two_seconds_and_now_when_asked(server: GitServer, mirror: Mirror) -> None:
    first = mirror.latest(fresh=False).commit
    asked = server.counts.requests
    second = server.commit(REPO.owner, REPO.name, {"b.md": b"b"})
    for _ in range(5):
        assert mirror.latest(fresh=False).commit == first
    assert server.counts.requests == asked
    assert mirror.latest(fresh=True).commit == second
    assert mirror.latest(fresh=False).commit == second


def test_a_look_older_than_its_age_is_repeated(tmp_path: Path, server: GitServer, remote: Remote) -> None:
    mirror = Mirror(tmp_path / "m.git", remote, SystemClock(), max_age_s=0.2)
    mirror.latest(fresh=False)
    second = server.commit(REPO.owner, REPO.name, {"b.md": b"b"})
    time.sleep(0.25)
    assert mirror.latest(fresh=False).commit == second
    mirror.close()


CROWD = """
import sys, time
from pathlib import Path
from worker.adapters.kb_git.git import Remote
from worker.adapters.kb_git.mirror import Mirror
from worker.clock import SystemClock
path, url, token, start = sys.argv[1:]
mirror = Mirror(Path(path), Remote(url, "bot", token), SystemClock())
time.sleep(max(0, float(start) - time.time()))
commit = mirror.latest(fresh=False).commit
print(commit, len(mirror.run(lambda repo: repo.tree(commit))))
mirror.close()
"""


def test_processes_that_come_at_once_clone_once(tmp_path: Path, server: GitServer, remote: Remote) -> None:
    start = str(time.time() + 2)
    crowd = [
        subprocess.Popen(
            [sys.executable, "-c", CROWD, tmp_path / "m.git", remote.url, TOKEN, start],
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    said = {process.communicate(timeout=60)[0] for process in crowd}
    assert said == {f"{head_of(server)} {len(PAGES)}\n"}
    assert server.counts.fetches == 1


def test_threads_that_ask_for_a_fresh_look_share_one(server: GitServer, mirror: Mirror) -> None:
    mirror.latest(fresh=True)
    before = server.counts.requests
    mirror.latest(fresh=True)
    single = server.counts.requests - before
    server.faults.delay_s = 0.1
    before = server.counts.requests
    threads = [threading.Thread(target=lambda: mirror.latest(fresh=True)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert server.counts.requests - before <= 2 * single


def truncate_pack(path: Path) -> None:
    for pack in (path / "objects" / "pack").glob("*.pack"):
        pack.chmod(0o644)
        pack.write_bytes(pack.read_bytes()[:40])


def remove_head(path: Path) -> None:
    (path / "HEAD").unlink()


def remove_packs(path: Path) -> None:
    for pack in (path / "objects" / "pack").iterdir():
        pack.unlink()


def empty_folder(path: Path) -> None:
    subprocess.run(["rm", "-rf", str(path)], check=True)
    path.mkdir()


def remove_folder(path: Path) -> None:
    subprocess.run(["rm", "-rf", str(path)], check=True)


@pytest.mark.parametrize("harm", [truncate_pack, remove_head, remove_packs, empty_folder, remove_folder])
@pytest.mark.parametrize("restarted", [True, False])
def test_a_damaged_mirror_is_moved_away_and_cloned_again(
    tmp_path: Path, server: GitServer, harm: Callable[[Path], None], restarted: bool
) -> None:
    mirrors = Mirrors(tmp_path / "cache", server.url, "bot", TOKEN, SystemClock())
    reader = GitKbReader(mirrors)
    commit = reader.latest(REPO, fresh=True).commit
    path = mirrors.of(REPO).path
    harm(path)
    if restarted:
        reader.close()
        mirrors = Mirrors(tmp_path / "cache", server.url, "bot", TOKEN, SystemClock())
        reader = GitKbReader(mirrors)
    newer = server.commit(REPO.owner, REPO.name, {"catalog.json": b'{"pages": [{"path": "n.md"}]}', "n.md": b"# N"})
    snapshot = reader.latest(REPO, fresh=True)
    assert (snapshot.commit, snapshot.read("n.md")) == (newer, "# N")
    assert reader.at(REPO, commit).read("a.md") == "# A\n"
    assert len(list(path.parent.glob("*.damaged-*"))) <= 1
    reader.close()


def test_a_killed_clone_leaves_nothing_half(tmp_path: Path, server: GitServer, remote: Remote) -> None:
    server.faults.delay_s = 0.6
    path = tmp_path / "m.git"
    killed = subprocess.Popen([sys.executable, "-c", CROWD, path, remote.url, TOKEN, "0"], start_new_session=True)
    deadline = time.monotonic() + 20
    while not list(tmp_path.glob("m.git.clone-*")):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    killed.kill()
    killed.wait()
    assert not path.exists()
    server.faults.delay_s = 0
    mirror = Mirror(path, remote, SystemClock())
    assert mirror.latest(fresh=True).commit == head_of(server)
    assert list(tmp_path.glob("m.git.clone-*")) == []
    mirror.close()


def test_rewritten_history_gives_the_new_head_and_keeps_what_a_job_is_pinned_to(
    tmp_path: Path, server: GitServer
) -> None:
    server.commit(REPO.owner, REPO.name, {"catalog.json": b'{"pages": [{"path": "a.md"}]}'})
    cache = Mirrors(tmp_path / "cache", server.url, "bot", TOKEN, SystemClock())
    reader = GitKbReader(cache)
    pinned = reader.latest(REPO, fresh=True).commit
    server.git("team", "kb", "update-ref", "-d", "refs/heads/main")
    rewritten = server.commit(REPO.owner, REPO.name, {"z.md": b"# Z"})
    assert reader.latest(REPO, fresh=True).commit == rewritten
    assert reader.at(REPO, pinned).read("a.md") == "# A\n"
    other_machine = GitKbReader(Mirrors(tmp_path / "other", server.url, "bot", TOKEN, SystemClock()))
    assert other_machine.at(REPO, pinned).read("a.md") == "# A\n"
    server.git("team", "kb", "reflog", "expire", "--expire=now", "--all")
    server.git("team", "kb", "gc", "--quiet", "--prune=now")
    late_machine = GitKbReader(Mirrors(tmp_path / "late", server.url, "bot", TOKEN, SystemClock()))
    with pytest.raises(PermanentError) as caught:
        late_machine.at(REPO, pinned)
    assert caught.value.code == Code.COMMIT_GONE
    assert reader.at(REPO, pinned).read("a.md") == "# A\n"
    for each in (reader, other_machine, late_machine):
        each.close()


def test_the_default_branch_may_have_any_name_and_may_change(server: GitServer, mirror: Mirror) -> None:
    first = mirror.latest(fresh=True)
    server.git("team", "kb", "branch", "-m", "main", "trunk/知识")
    server.git("team", "kb", "symbolic-ref", "HEAD", "refs/heads/trunk/知识")
    renamed = mirror.latest(fresh=True)
    assert (renamed.branch, renamed.commit) == ("trunk/知识", first.commit)
    server.git("team", "kb", "branch", "-m", "trunk/知识", "trunk")
    server.git("team", "kb", "symbolic-ref", "HEAD", "refs/heads/gone")
    assert mirror.latest(fresh=True).branch == "trunk"
    server.commit(REPO.owner, REPO.name, {"x.md": b"x"}, branch="second")
    with pytest.raises(PermanentError, match="default branch"):
        mirror.latest(fresh=True)


def test_an_empty_repository_becomes_a_full_one(tmp_path: Path, server: GitServer) -> None:
    server.create("team", "fresh", branch="trunk")
    reader = GitKbReader(Mirrors(tmp_path / "cache", server.url, "bot", TOKEN, SystemClock()))
    repo = RepoRef("team", "fresh")
    assert reader.latest(repo, fresh=True).commit == NULL_ID
    commit = server.commit("team", "fresh", {"a.md": b"# A"}, branch="trunk")
    assert reader.latest(repo, fresh=True).commit == commit
    reader.close()


def test_links_and_submodules_are_no_pages(tmp_path: Path, server: GitServer) -> None:
    path = server.repo_path("team", "kb")
    stream = (
        b"commit refs/heads/main\ncommitter S <s@x> 1 +0000\ndata 1\nx\nfrom refs/heads/main^0\n"
        b"M 120000 inline link.md\ndata 4\na.md\nM 160000 "
        + b"1" * 40
        + b" sub.md\nM 100755 inline run.md\ndata 1\nx\n"
    )
    subprocess.run(["git", "fast-import", "--quiet", "--date-format=raw"], cwd=path, input=stream, check=True)
    server.commit("team", "kb", {"b.md": b"b"}, delete=["catalog.json"])
    reader = GitKbReader(Mirrors(tmp_path / "cache", server.url, "bot", TOKEN, SystemClock()))
    snapshot = reader.latest(REPO, fresh=True)
    paths = [facts.path for facts in snapshot.listing(50, [])]
    assert "link.md" not in paths
    assert "sub.md" not in paths
    assert {"a.md", "b.md", "run.md"} <= set(paths)
    reader.close()


def test_huge_and_binary_pages_are_handled(tmp_path: Path, server: GitServer) -> None:
    text = "字" * 2_000_000
    server.commit(
        "team", "kb", {"huge.md": text.encode(), "binary.md": b"PK\x03\x04\0\0" * 50}, delete=["catalog.json"]
    )
    reader = GitKbReader(Mirrors(tmp_path / "cache", server.url, "bot", TOKEN, SystemClock()))
    snapshot = reader.latest(REPO, fresh=True)
    huge = snapshot.read("huge.md")
    assert huge is not None
    assert 600_000 < len(huge) < 800_000
    assert set(huge) == {"字"}
    assert snapshot.read("binary.md") == ""
    codes = {(note.path, note.code) for note in snapshot.notes(["huge.md", "binary.md"])}
    assert {("huge.md", "PAGE_TOO_LARGE"), ("binary.md", "PAGE_BINARY")} <= codes
    reader.close()


def test_a_new_commit_reads_only_changed_pages(tmp_path: Path, server: GitServer) -> None:
    pages = {f"p{n}.md": f"# Page {n}".encode() for n in range(30)}
    server.commit("team", "kb", pages, delete=["catalog.json"])
    reader = GitKbReader(Mirrors(tmp_path / "cache", server.url, "bot", TOKEN, SystemClock()))
    old = reader.latest(REPO, fresh=True)
    old.rank("page", 5)
    server.commit("team", "kb", {"p3.md": b"# Page changed"})
    new = reader.latest(REPO, fresh=True)
    fresh_before = set(new.content)  # type: ignore[attr-defined]
    assert new.rank("changed", 5)[0].facts.path == "p3.md"
    assert len(set(new.content) - fresh_before) == 1  # type: ignore[attr-defined]
    assert old.rank("changed", 5) == []
    reader.close()


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
