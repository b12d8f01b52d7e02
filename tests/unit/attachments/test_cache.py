"""The preview cache: private, keyed by our own hash, deletable, never in the way."""

from __future__ import annotations

from pathlib import Path

from worker.adapters.attachments.cache import PreviewCache
from worker.adapters.attachments.child import ChildAnswer

SHA = "ab" * 32
TEXT = ChildAnswer(kind="docx", text="内容", meta={"detectedType": "docx"})


def test_what_was_kept_comes_back_only_for_the_same_bytes_ending_and_limits(tmp_path: Path) -> None:
    cache = PreviewCache(tmp_path / "previews")
    cache.put(SHA, "a.docx", "8000", TEXT)
    assert cache.get(SHA, "b.DOCX", "8000") == TEXT
    assert cache.get(SHA, "a.csv", "8000") is None
    assert cache.get(SHA, "a.docx", "4000") is None
    assert cache.get("cd" * 32, "a.docx", "8000") is None


def test_faults_of_the_file_are_kept_and_faults_of_the_moment_are_not(tmp_path: Path) -> None:
    cache = PreviewCache(tmp_path)
    cache.put(SHA, "a", "1", ChildAnswer(fault="PASSWORD_PROTECTED"))
    cache.put(SHA, "b.x", "1", ChildAnswer(fault="TIMEOUT", settled=False))
    kept = cache.get(SHA, "a", "1")
    assert kept is not None
    assert kept.fault == "PASSWORD_PROTECTED"
    assert cache.get(SHA, "b.x", "1") is None


def test_the_files_are_private(tmp_path: Path) -> None:
    PreviewCache(tmp_path / "previews").put(SHA, "a", "1", TEXT)
    assert (tmp_path / "previews").stat().st_mode & 0o777 == 0o700
    assert [path.stat().st_mode & 0o777 for path in (tmp_path / "previews").iterdir()] == [0o600]


def test_a_damaged_entry_or_a_folder_that_cannot_be_written_is_as_no_cache(tmp_path: Path) -> None:
    cache = PreviewCache(tmp_path)
    cache.put(SHA, "a", "1", TEXT)
    for path in tmp_path.iterdir():
        path.write_bytes(b'{"text": 1, "unknown": 2')
    assert cache.get(SHA, "a", "1") is None
    (tmp_path / "file").write_bytes(b"")
    PreviewCache(tmp_path / "file" / "below").put(SHA, "a", "1", TEXT)


def test_old_entries_go_when_there_are_too_many(tmp_path: Path) -> None:
    cache = PreviewCache(tmp_path, max_entries=3)
    for number in range(300):
        cache.put(f"{number:02x}" * 32, "a", "1", TEXT)
    cache.put("00" * 32, "a", "1", TEXT)
    assert len(list(tmp_path.iterdir())) <= 4
