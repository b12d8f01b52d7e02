"""The mirror and the reader over it: crowds, accidents, rewritten history, odd repositories."""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from tasks.errors import Code, PermanentError, TransientError
from tasks.ports import RepoRef
from tests.git_world import (
    PAGES,
    REPO,
    TOKEN,
    head_of,
)
from worker.adapters.kb_git.git import (
    NULL_ID,
    Remote,
)
from worker.adapters.kb_git.mirror import MAX_LOOSE, Mirror, Mirrors
from worker.adapters.kb_git.snapshot import GitKbReader
from worker.clock import SystemClock
from worker.demo.git_server import GitServer

# ---------------------------------------------------------------- the mirror


def test_the_remote_is_looked_at_once_in_a_while_and_now_when_asked(
    tmp_path: Path, server: GitServer, remote: Remote
) -> None:
    mirror = Mirror(tmp_path / "m.git", remote, SystemClock(), max_age_s=600.0)
    first = mirror.latest(fresh=False).commit
    asked = server.counts.requests
    second = server.commit(REPO.owner, REPO.name, {"b.md": b"b"})
    for _ in range(5):
        assert mirror.latest(fresh=False).commit == first
    assert server.counts.requests == asked
    assert mirror.latest(fresh=True).commit == second
    assert mirror.latest(fresh=False).commit == second
    mirror.close()


def test_a_look_older_than_its_age_is_repeated(tmp_path: Path, server: GitServer, remote: Remote) -> None:
    mirror = Mirror(tmp_path / "m.git", remote, SystemClock(), max_age_s=0.2)
    mirror.latest(fresh=False)
    second = server.commit(REPO.owner, REPO.name, {"b.md": b"b"})
    time.sleep(0.25)
    assert mirror.latest(fresh=False).commit == second
    mirror.close()


class _Hasty(SystemClock):
    """Does not wait: a second passes in no time."""

    skipped = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.skipped

    def sleep(self, seconds: float) -> None:
        self.skipped += 50 * seconds


def test_a_process_frozen_with_the_lock_holds_up_only_who_needs_new_objects(
    tmp_path: Path, server: GitServer, remote: Remote
) -> None:
    mirror = Mirror(tmp_path / "m.git", remote, _Hasty())
    here = mirror.latest(fresh=True)
    with (tmp_path / "m.git.lock").open("r+") as frozen:
        fcntl.flock(frozen, fcntl.LOCK_EX)
        assert mirror.latest(fresh=True) == here
        newer = server.commit(REPO.owner, REPO.name, {"b.md": b"b"})
        with pytest.raises(TransientError, match=r"held m\.git\.lock"):
            mirror.latest(fresh=True)
    assert mirror.latest(fresh=True).commit == newer


def test_a_failed_look_is_not_believed_once_the_server_is_mended(server: GitServer, mirror: Mirror) -> None:
    server.token, known = "revoked", server.token
    with pytest.raises(PermanentError):
        mirror.latest(fresh=False)
    server.token = known
    assert mirror.latest(fresh=False).commit == head_of(server)


def test_a_cache_that_takes_no_file_is_told_by_its_setting_and_tried_again(mirror: Mirror) -> None:
    mirror.path.with_name(f"{mirror.path.name}.json").mkdir()
    with pytest.raises(TransientError, match="KBW_CACHE_DIR") as caught:
        mirror.latest(fresh=True)
    assert caught.value.code is Code.KB_UNREACHABLE
    assert not list(mirror.path.parent.glob("*.tmp"))


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
    said = {process.communicate(timeout=300)[0] for process in crowd}
    assert said == {f"{head_of(server)} {len(PAGES)}\n"}
    assert server.counts.fetches == 1


def test_threads_that_ask_for_a_fresh_look_share_one(server: GitServer, mirror: Mirror) -> None:
    mirror.latest(fresh=True)
    before = server.counts.requests
    mirror.latest(fresh=True)
    single = server.counts.requests - before
    server.faults.delay_s = 600.0
    before = server.counts.requests
    together = threading.Barrier(7)
    threads = [threading.Thread(target=lambda: (together.wait(), mirror.latest(fresh=True))) for _ in range(6)]
    for thread in threads:
        thread.start()
    together.wait()
    time.sleep(0.5)  # one asks, and the others wait for it
    server.faults.delay_s = 0.0
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


def test_a_cache_that_was_deleted_under_a_running_worker_is_made_again(tmp_path: Path, server: GitServer) -> None:
    reader = GitKbReader(Mirrors(tmp_path / "cache", server.url, "bot", TOKEN, SystemClock()))
    reader.latest(REPO, fresh=True)
    remove_folder(tmp_path / "cache")
    assert reader.latest(REPO, fresh=True).read("a.md") == "# A\n"
    reader.close()


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


def test_a_lock_that_a_killed_git_left_does_not_close_the_mirror_for_ever(tmp_path: Path, server: GitServer) -> None:
    reader = GitKbReader(Mirrors(tmp_path / "cache", server.url, "bot", TOKEN, SystemClock()))
    reader.latest(REPO, fresh=True)
    (path,) = (found for found in (tmp_path / "cache").glob("*.git") if found.is_dir())
    lock = path / "refs" / "kbw" / "head.lock"
    lock.touch()
    newer = server.commit(REPO.owner, REPO.name, {"n.md": b"# N"})
    with pytest.raises(TransientError, match="cannot lock ref"):
        reader.latest(REPO, fresh=True)  # whoever holds it may still be at work
    os.utime(lock, (time.time() - 600.0,) * 2)
    assert reader.latest(REPO, fresh=True).commit == newer
    reader.close()


def test_a_killed_clone_leaves_nothing_half(tmp_path: Path, server: GitServer, remote: Remote) -> None:
    server.faults.delay_s = 1.5
    path = tmp_path / "m.git"
    killed = subprocess.Popen([sys.executable, "-c", CROWD, path, remote.url, TOKEN, "0"], start_new_session=True)
    deadline = time.monotonic() + 120
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
    assert new.rank("changed", 5)[0].facts.path == "p3.md"
    index = tmp_path / "cache"
    before, after = (
        {file.stat().st_ino for file in index.glob(f"*.index/{kb.commit}-*/pages/*.store")} for kb in (old, new)
    )
    assert before < after  # the files of the other pages are shared
    assert old.rank("changed", 5) == []
    reader.close()


@pytest.mark.parametrize("name", ["kb", "fresh"])
def test_whether_the_token_may_push_is_known_without_pushing(tmp_path: Path, server: GitServer, name: str) -> None:
    if name == "fresh":
        server.create("team", "fresh")
    mirrors = Mirrors(tmp_path / "cache", server.url, "bot", TOKEN, SystemClock())
    before = server.head("team", name)
    assert mirrors.push_problem(RepoRef("team", name)) == ""
    server.faults.push_status = 403
    assert "GITEA_BOT_TOKEN" in mirrors.push_problem(RepoRef("team", name))
    assert (server.head("team", name), server.counts.pushes) == (before, 0)
    mirrors.close()


def test_loose_objects_of_many_commits_are_packed_and_stay_readable(tmp_path: Path, server: GitServer) -> None:
    mirror = Mirrors(tmp_path / "cache", server.url, "bot", TOKEN, SystemClock()).of(REPO)
    head = mirror.latest(fresh=True).commit
    assert not mirror.tidy()
    blobs = []
    while mirror.run(lambda repo: repo.loose_count()) < MAX_LOOSE:
        data = b"%d" % len(blobs)
        blobs.append((store_loose(mirror.path, data), data))
    assert mirror.tidy()
    assert mirror.run(lambda repo: repo.loose_count()) < MAX_LOOSE
    assert all(mirror.run(lambda repo, blob=blob: repo.read(blob)) == data for blob, data in blobs)
    assert mirror.run(lambda repo: repo.has(head))
    mirror.close()


def store_loose(repo: Path, data: bytes) -> str:
    """A blob as git itself writes it, without a process."""
    whole = b"blob %d\0" % len(data) + data
    name = hashlib.sha1(whole).hexdigest()
    target = repo / "objects" / name[:2] / name[2:]
    target.parent.mkdir(exist_ok=True)
    target.write_bytes(zlib.compress(whole))
    return name
