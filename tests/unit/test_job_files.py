"""Job folders: whole files or none, one first writer, readable journals, nothing written where a share is gone."""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
import threading
from pathlib import Path

import pytest

from tasks.errors import PermanentError, TransientError
from worker.adapters.job_files import Folder, FolderStore
from worker.masking import MASK, SecretMask

TASK = "query-1-2"
SECRET = "tok-3f9a17c2"


@pytest.fixture
def shared_dir(tmp_path: Path) -> Path:
    place = tmp_path / "shared"
    place.mkdir()
    return place


@pytest.fixture
def store(shared_dir: Path) -> FolderStore:
    return FolderStore(shared_dir, SecretMask([SECRET], ["bot"]))


@pytest.fixture
def folder(store: FolderStore) -> Folder:
    return store.open(TASK)


def leftovers(folder: Folder) -> list[str]:
    return [path.name for path in Path(folder.path).iterdir() if path.name.endswith(".tmp")]


# ---------------------------------------------------------------- artefacts


def test_a_file_is_written_whole_and_read_back(folder: Folder) -> None:
    folder.write("context.json", b"one")
    folder.write("context.json", b"two")
    folder.write("replies/select-1.txt", b"raw")

    assert folder.read("context.json") == b"two"
    assert folder.read("replies/select-1.txt") == b"raw"
    assert leftovers(folder) == []


def test_missing_and_empty_files_are_nothing(folder: Folder) -> None:
    Path(folder.path, "empty.json").touch()

    assert folder.read("absent.json") is None
    assert folder.read("absent/either.json") is None
    assert folder.read("empty.json") is None


def test_files_get_the_configured_mode(shared_dir: Path) -> None:
    before = os.umask(0o077)
    try:
        own = FolderStore(shared_dir, SecretMask([]), 0o664).open(TASK)
        own.write("a.json", b"{}")
        own.write_once("b.json", b"{}")
        own.append("c.jsonl", {})
    finally:
        os.umask(before)

    assert {stat.S_IMODE(Path(own.path, name).stat().st_mode) for name in ("a.json", "b.json", "c.jsonl")} == {0o664}


def test_without_a_mode_the_umask_decides(folder: Folder) -> None:
    before = os.umask(0o027)
    try:
        folder.write("a.json", b"{}")
        folder.append("c.jsonl", {})
    finally:
        os.umask(before)

    assert {stat.S_IMODE(Path(folder.path, name).stat().st_mode) for name in ("a.json", "c.jsonl")} == {0o640}


def test_secrets_are_masked_on_the_way_in_also_inside_escapes(folder: Folder) -> None:
    folder.write("a.json", json.dumps({"q": f"mine is {SECRET}", SECRET: [SECRET]}).encode())
    folder.write("replies/answer-1.txt", f"Basic {SECRET}".encode())
    folder.append("events.jsonl", {"reason": f"token {SECRET} refused"})
    folder.write_once("result.json", json.dumps({"answer": SECRET}).encode())

    assert json.loads(folder.read("a.json") or b"") == {"q": f"mine is {MASK}", MASK: [MASK]}
    for path in Path(folder.path).rglob("*"):
        assert path.is_dir() or SECRET.encode() not in path.read_bytes()


def test_a_document_without_a_secret_keeps_its_bytes(folder: Folder) -> None:
    odd = b'{ "b":1,\n"a":   [] }'
    folder.write("a.json", odd)

    assert folder.read("a.json") == odd


# ---------------------------------------------------------------- one first writer


def test_the_first_writer_decides_the_bytes(folder: Folder) -> None:
    assert folder.write_once("result.json", b"{1}") == b"{1}"
    assert folder.write_once("result.json", b"{2}") == b"{1}"
    assert leftovers(folder) == []


def test_of_many_writers_at_once_one_wins_and_all_agree(folder: Folder) -> None:
    seen: list[bytes] = []
    barrier = threading.Barrier(8)

    def write(number: int) -> None:
        barrier.wait()
        seen.append(folder.write_once("result.json", f"[{number}]".encode() * 1_000))

    threads = [threading.Thread(target=write, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(set(seen)) == 1
    assert folder.read("result.json") == seen[0]
    assert leftovers(folder) == []


def test_an_empty_file_of_a_crash_is_no_first_writer(folder: Folder) -> None:
    Path(folder.path, "result.json").touch()

    assert folder.write_once("result.json", b"{}") == b"{}"
    assert folder.read("result.json") == b"{}"


def test_a_share_without_hard_links_works_too(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)

    assert folder.write_once("result.json", b"[1]") == b"[1]"
    assert folder.write_once("result.json", b"[2]") == b"[1]"
    assert leftovers(folder) == []


# ---------------------------------------------------------------- journals


def test_a_torn_last_line_is_closed_before_the_next_one(folder: Folder) -> None:
    folder.append("events.jsonl", {"n": 1})
    with Path(folder.path, "events.jsonl").open("ab") as file:
        file.write(b'{"n": 2, "half')
    folder.append("events.jsonl", {"n": 3})

    lines = (folder.read("events.jsonl") or b"").splitlines()
    assert [json.loads(line)["n"] for line in (lines[0], lines[2])] == [1, 3]
    assert len(lines) == 3


def test_a_replay_loses_nothing_of_the_attempt_before(folder: Folder) -> None:
    folder.write("answer.json", b"old")
    folder.write("replies/answer-1.txt", b"raw")
    folder.archive(["answer.json", "replies/answer-1.txt", "never-there.json"], 1)
    folder.write("answer.json", b"new")

    assert folder.read("attempts/1/answer.json") == b"old"
    assert folder.read("attempts/1/replies/answer-1.txt") == b"raw"
    assert folder.read("answer.json") == b"new"


# ---------------------------------------------------------------- a share that is gone, a disk that is full


def refused(work: object) -> TransientError:
    with pytest.raises(TransientError) as caught:
        work()  # type: ignore[operator]
    assert caught.value.code == "RESULT_DIR_MISSING"
    return caught.value


def test_an_unmounted_share_is_waited_for_and_not_filled(store: FolderStore, folder: Folder, shared_dir: Path) -> None:
    shutil.rmtree(shared_dir)

    refused(lambda: store.open(TASK))
    refused(lambda: folder.write("a.json", b"{}"))
    refused(lambda: folder.write("replies/a.txt", b"{}"))
    refused(lambda: folder.write_once("a.json", b"{}"))
    refused(lambda: folder.append("a.jsonl", {}))
    refused(lambda: folder.read("payload.json"))
    assert not shared_dir.exists()


def test_the_bare_mount_point_is_not_taken_for_the_share(store: FolderStore, folder: Folder, shared_dir: Path) -> None:
    shutil.rmtree(shared_dir)
    shared_dir.mkdir()

    refused(lambda: store.open(TASK, known=True))
    refused(lambda: folder.read("payload.json"))
    refused(lambda: folder.write("replies/a.txt", b"{}"))
    assert list(shared_dir.iterdir()) == []


def test_a_known_job_whose_folder_was_deleted_gets_a_new_one(store: FolderStore, folder: Folder) -> None:
    shutil.rmtree(folder.path)

    assert store.open(TASK, known=True).read("payload.json") is None


def test_a_full_disk_leaves_the_old_file_and_no_temporary_one(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.write("a.json", b"old")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)

    assert "No space left" in refused(lambda: folder.write("a.json", b"new")).en
    assert "No space left" in refused(lambda: folder.write_once("b.json", b"new")).en
    assert folder.read("a.json") == b"old"
    assert folder.read("b.json") is None
    assert leftovers(folder) == []


@pytest.mark.parametrize("task_id", ["../x", "a/b", "..", "", "a\nb", "x" * 201, "会话"])
def test_an_unsafe_id_never_becomes_a_folder(store: FolderStore, shared_dir: Path, task_id: str) -> None:
    with pytest.raises(PermanentError):
        store.open(task_id)
    assert list(shared_dir.iterdir()) == []


def test_jobs_are_listed_by_their_folders(store: FolderStore, shared_dir: Path) -> None:
    assert store.task_ids() == []
    store.open("query-1-2")
    store.open("query-1-1")
    (shared_dir / ".kbw" / "jobs" / "not a task").mkdir()
    (shared_dir / ".kbw" / "jobs" / "file.json").touch()

    assert store.task_ids() == ["query-1-1", "query-1-2"]
