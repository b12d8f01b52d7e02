"""One suite over the fake and the real attachment reader; then what only real files and processes can show."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import re
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tasks.contract.context import AttachmentView, Limits
from tasks.contract.payload import AttachmentRef
from tasks.ports import AttachmentReader
from tests.attachment_files import docx, pdf, pdf_with_stream
from tests.fakes_attachments import FakeAttachmentReader
from tests.git_world import processes_below
from worker.adapters.attachments import build_reader, child_main
from worker.adapters.attachments.cache import PreviewCache
from worker.adapters.attachments.child import ChildLimits
from worker.adapters.attachments.faults import CODES
from worker.adapters.attachments.reader import ChildProcessReader, ReaderLimits
from worker.paths import AllowedRoots

MakeReader = Callable[[Mapping[str, str]], AttachmentReader]
LONG = "这是一段很长的文字。" * 2_000


@pytest.fixture(params=["fake", "real"])
def make_reader(request: pytest.FixtureRequest, tmp_path: Path) -> MakeReader:
    """A reader over text files, given as ``{path: text}``."""

    def make(texts: Mapping[str, str]) -> AttachmentReader:
        if request.param == "fake":
            return FakeAttachmentReader(texts)
        for path, text in texts.items():
            (tmp_path / path).write_text(text, encoding="utf-8")
        return build_reader(AllowedRoots(tmp_path), None)

    return make


def attached(path: str | None, **more: object) -> AttachmentRef:
    return AttachmentRef.model_validate({"attachmentId": 7, "fileName": path or "无.txt", "storagePath": path, **more})


class TestEveryReader:
    def test_no_attachments_are_no_views(self, make_reader: MakeReader) -> None:
        assert make_reader({}).read([], None, Limits()) == []

    def test_one_view_an_attachment_in_their_order_good_or_bad(self, make_reader: MakeReader) -> None:
        reader = make_reader({"甲.txt": "甲的内容", "乙.txt": "乙的内容"})
        views = reader.read(
            [attached("乙.txt"), attached("没有.txt"), attached("甲.txt"), attached(None)], None, Limits()
        )
        assert [view.text_preview for view in views] == ["乙的内容", "", "甲的内容", ""]
        assert [view.error.code if view.error else None for view in views] == [None, "NOT_FOUND", None, "NO_FILE"]
        assert [view.preview_available for view in views] == [True, False, True, False]
        assert [view.preview_status for view in views] == ["ok", "unavailable", "ok", "unavailable"]
        assert all(view.attachment_id == 7 and view.temporary for view in views)

    def test_an_error_names_the_file_in_chinese(self, make_reader: MakeReader) -> None:
        (view,) = make_reader({}).read([attached("没有.txt")], None, Limits())
        assert view.error is not None
        assert "《没有.txt》" in view.error.message

    def test_budgets_hold_for_each_file_and_for_all(self, make_reader: MakeReader) -> None:
        reader = make_reader({f"{n}.txt": LONG for n in range(4)})
        (one,) = reader.read([attached("0.txt")], None, Limits())
        assert len(one.text_preview) == 8_000
        assert one.preview_status == "truncated"
        four = reader.read([attached(f"{n}.txt") for n in range(4)], None, Limits())
        assert [len(view.text_preview) for view in four] == [4_000] * 4

    def test_size_and_sha256_are_checked_when_given_and_told_when_not(self, make_reader: MakeReader) -> None:
        digest = hashlib.sha256("内容".encode()).hexdigest()
        reader = make_reader({"a.txt": "内容"})
        views = reader.read(
            [attached("a.txt"), attached("a.txt", sha256=digest, size=6), attached("a.txt", sha256="0" * 64)],
            None,
            Limits(),
        )
        assert [view.sha256 for view in views] == [digest, digest, "0" * 64]
        assert [view.size for view in views[:2]] == [6, 6]
        assert views[1].metadata["verified"] is True
        assert views[2].error is not None
        assert views[2].error.code == "INTEGRITY_MISMATCH"
        assert views[2].text_preview == ""


def read_one(reader: AttachmentReader, ref: AttachmentRef, shared_dir: str | None = None) -> AttachmentView:
    (view,) = reader.read([ref], shared_dir, Limits())
    return view


def open_descriptors() -> set[str]:
    return {entry.name for entry in Path("/proc/self/fd").iterdir() if entry.exists()}


def code_of(view: AttachmentView) -> str:
    assert view.error is not None, view
    assert not view.preview_available
    return view.error.code


class TestFilesFromOutside:
    @pytest.fixture
    def share(self, tmp_path: Path) -> Path:
        folder = tmp_path / "share"
        folder.mkdir()
        (tmp_path / "secret.txt").write_text("机密")
        return folder

    @pytest.fixture
    def reader(self, share: Path) -> AttachmentReader:
        return build_reader(AllowedRoots(share), None)

    def test_a_docx_in_chinese_by_the_backends_own_absolute_path(self, share: Path, reader: AttachmentReader) -> None:
        (share / "in").mkdir()
        (share / "in" / "a.bin").write_bytes(docx("季度报告", "销售额上升"))
        view = read_one(reader, attached("/data/backend/in/a.bin", fileName="报告.docx"), "/data/backend")
        assert view.text_preview == "季度报告\n销售额上升"
        assert view.metadata["detectedType"] == "docx"
        assert view.metadata["charsRead"] == len(view.text_preview)
        assert view.metadata["truncated"] is False

    def test_paths_that_lead_outside_are_not_read(self, share: Path, reader: AttachmentReader, tmp_path: Path) -> None:
        (share / "link.txt").symlink_to(tmp_path / "secret.txt")
        for path in ("../secret.txt", str(tmp_path / "secret.txt"), "link.txt", "/etc/passwd", "a\0b"):
            view = read_one(reader, attached(path))
            assert code_of(view) == "OUTSIDE_ALLOWED_ROOTS"
            assert str(tmp_path) not in view.model_dump_json(include={"error", "metadata"})
        assert code_of(read_one(reader, attached(str(tmp_path / "secret.txt")), str(tmp_path))) != ""

    def test_what_is_no_regular_file_is_not_read_and_nothing_hangs(
        self, share: Path, reader: AttachmentReader, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        os.mkfifo(share / "fifo")
        (share / "folder").mkdir()
        names = ["fifo", "folder", "folder/", ".", "socket"]
        monkeypatch.chdir(share)  # a socket's address holds 107 bytes: fewer than a test's folder may have
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind("socket")
        with contextlib.suppress(PermissionError):  # only root makes devices
            os.mknod(share / "zero", stat.S_IFCHR | 0o666, os.makedev(1, 5))
            names.append("zero")
        for name in names:
            assert code_of(read_one(reader, attached(name))) == "NOT_A_FILE", name

    def test_a_link_to_itself_a_name_without_end_and_a_file_as_a_folder_are_not_read(
        self, share: Path, reader: AttachmentReader
    ) -> None:
        (share / "loop").symlink_to("loop")
        (share / "a.txt").write_text("x")
        assert code_of(read_one(reader, attached("loop"))) in ("NOT_FOUND", "NOT_A_FILE", "OUTSIDE_ALLOWED_ROOTS")
        for path in ("x" * 300, "a.txt/b", "/".join(["d"] * 3_000)):
            assert code_of(read_one(reader, attached(path))) == "NOT_FOUND"

    def test_a_link_inside_and_a_name_with_odd_letters_work(self, share: Path, reader: AttachmentReader) -> None:
        (share / "行\n一😀.txt").write_text("内容")
        (share / "link").symlink_to("行\n一😀.txt")
        for path in ("link", "行\n一😀.txt", "./no/../link"):
            assert read_one(reader, attached(path)).text_preview == "内容"

    def test_a_wrong_size_and_upper_case_or_prefixed_hashes(self, share: Path, reader: AttachmentReader) -> None:
        (share / "a.txt").write_bytes(b"text")
        digest = hashlib.sha256(b"text").hexdigest()
        assert code_of(read_one(reader, attached("a.txt", size=5))) == "INTEGRITY_MISMATCH"
        assert read_one(reader, attached("a.txt", sha256=digest.upper(), size=0)).metadata["verified"] is True
        assert read_one(reader, attached("a.txt", sha256=f"sha256:{digest}")).preview_available
        assert code_of(read_one(reader, attached("a.txt", sha256="no hash"))) == "INTEGRITY_MISMATCH"

    def test_a_file_too_large_is_not_even_hashed(self, share: Path) -> None:
        with (share / "big.txt").open("wb") as file:
            file.truncate(512 * 1024 * 1024 + 1)
        view = read_one(build_reader(AllowedRoots(share), None), attached("big.txt"))
        assert code_of(view) == "TOO_LARGE"
        assert view.sha256 == ""

    def test_a_large_file_is_read_as_far_as_needed(self, share: Path) -> None:
        with (share / "big.pdf").open("wb") as file:
            file.write(pdf(["The first page"]))
            file.truncate(80 * 1024 * 1024)
        assert read_one(build_reader(AllowedRoots(share), None), attached("big.pdf")).text_preview == "The first page"

    def test_more_attachments_than_allowed_are_told(self, share: Path) -> None:
        (share / "a.txt").write_text("x")
        reader = build_reader(AllowedRoots(share), None, ReaderLimits(max_attachments=2))
        views = reader.read([attached("a.txt")] * 4, None, Limits())
        assert [view.error.code if view.error else "" for view in views] == [
            "",
            "",
            "BUDGET_EXHAUSTED",
            "BUDGET_EXHAUSTED",
        ]

    def test_when_the_jobs_time_is_over_the_rest_is_told(self, share: Path) -> None:
        (share / "a.txt").write_text("x")
        reader = build_reader(AllowedRoots(share), None, ReaderLimits(job_wall_s=0.1))
        assert code_of(read_one(reader, attached("a.txt"))) == "BUDGET_EXHAUSTED"

    def test_a_page_that_unpacks_to_a_gigabyte_ends_the_child_not_the_worker(self, share: Path) -> None:
        (share / "bomb.pdf").write_bytes(pdf_with_stream(600 * 1024 * 1024))
        (share / "a.txt").write_text("daneben")
        views = build_reader(AllowedRoots(share), None).read([attached("bomb.pdf"), attached("a.txt")], None, Limits())
        assert code_of(views[0]) in ("OUT_OF_MEMORY", "TIMEOUT", "TOO_LARGE")
        assert views[1].text_preview == "daneben"

    def test_a_child_that_takes_too_long_is_ended(self, share: Path) -> None:
        (share / "a.pdf").write_bytes(pdf(["text"]))
        hasty = ReaderLimits(child=ChildLimits(wall_s=0.001))
        assert code_of(read_one(build_reader(AllowedRoots(share), None, hasty), attached("a.pdf"))) == "TIMEOUT"

    def test_a_file_swapped_after_it_was_opened_is_not_the_one_that_is_read(self, share: Path, tmp_path: Path) -> None:
        (share / "a.txt").write_text("geprueft")
        (share / "other.txt").write_text("vertauscht")

        class SwappingRoots(AllowedRoots):
            def open_readable(self, path: Path) -> int:
                descriptor = super().open_readable(path)
                (share / "other.txt").rename(share / "a.txt")
                return descriptor

        view = read_one(build_reader(SwappingRoots(share), None), attached("a.txt"))
        assert view.text_preview == "geprueft"
        assert view.sha256 == hashlib.sha256(b"geprueft").hexdigest()

    def test_a_file_written_to_between_hash_and_reading_is_not_shown_and_not_cached(
        self, share: Path, tmp_path: Path
    ) -> None:
        (share / "a.txt").write_text("geprueft")
        calls = iter(range(1_000))

        def clock() -> float:
            if next(calls) == 3:  # deadline, start, before the only block is hashed, and now: before the child starts
                (share / "a.txt").write_text("vertauscht und laenger")
            return time.monotonic()

        cache = PreviewCache(tmp_path / "cache")
        view = read_one(ChildProcessReader(AllowedRoots(share), cache, monotonic=clock), attached("a.txt"))
        assert code_of(view) == "INTEGRITY_MISMATCH"
        assert not (tmp_path / "cache").exists()

    def test_the_cache_answers_for_the_same_bytes_under_another_name(self, share: Path, tmp_path: Path) -> None:
        (share / "a.docx").write_bytes(docx("内容"))
        (share / "b.docx").write_bytes(docx("内容"))
        cached = build_reader(AllowedRoots(share), tmp_path / "cache")
        first = read_one(cached, attached("a.docx"))
        for entry in (tmp_path / "cache").iterdir():  # what is told the second time can only come from here
            entry.write_text(entry.read_text().replace(json.dumps("内容")[1:-1], json.dumps("来自缓存")[1:-1]))
        second = read_one(cached, attached("b.docx"))
        assert first.text_preview == "内容"
        assert second.text_preview == "来自缓存"

    def test_nothing_of_a_child_is_left_behind(self, share: Path, reader: AttachmentReader) -> None:
        (share / "a.txt").write_text("x")
        before, children = open_descriptors(), set(processes_below(os.getpid()))
        for _ in range(5):
            assert read_one(reader, attached("a.txt")).preview_available
        assert open_descriptors() <= before, "what other tests left may close meanwhile"
        assert set(processes_below(os.getpid())) <= children


RENAMED = {"too_large_uncompressed": "TOO_LARGE"}


def squeezed(text: str) -> str:
    return re.sub(r"\s", "", text)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "corpus_file" in metafunc.fixturenames:
        manifest = Path(__file__).resolve().parents[3] / "shared" / "attachments" / "manifest.json"
        cases = json.loads(manifest.read_text(encoding="utf-8"))["files"] if manifest.exists() else [{"file": "none"}]
        metafunc.parametrize("corpus_file", cases, ids=[case["file"] for case in cases])


def test_every_file_of_the_shared_corpus(corpus_file: dict[str, object], shared: Callable[[str], Path]) -> None:
    folder = shared("attachments") / "files"
    reader = build_reader(AllowedRoots(folder), None)
    name = str(corpus_file["file"])
    view = read_one(reader, attached(name, sha256=corpus_file["sha256"], size=corpus_file["size"]))
    expected = corpus_file["expect"]
    assert isinstance(expected, dict)
    assert "\ufffd" not in view.text_preview
    if expected["status"] == "ok":
        assert view.error is None, view.error
        assert all(squeezed(phrase) in squeezed(view.text_preview) for phrase in expected["phrases"])
        assert not any(word in view.text_preview for word in expected.get("must_not_contain", []))
        if pages := expected.get("metadata", {}).get("page_count"):
            assert view.metadata["pageCount"] == pages
    elif view.metadata.get("ocr"):
        assert "OCR" in expected["also_accepted"]
    elif view.error is not None:
        assert view.error.code in [RENAMED.get(kind, kind.upper()) for kind in expected["error_kinds"]]
        assert name in view.error.message
    else:
        assert "also_accepted" in expected
        assert view.text_preview.startswith("AAAA")


FUZZ_CASES = int(os.environ.get("KBW_FUZZ_CASES", "16"))
FUZZ_AT_ONCE = 16


def test_mutated_files_of_the_corpus_give_only_typed_answers(shared: Callable[[str], Path], tmp_path: Path) -> None:
    """Flipped bytes and cut ends, through real children: a native abort there is a fault here, never an exception."""
    sources = [
        path for path in sorted((shared("attachments") / "files").iterdir()) if 0 < path.stat().st_size < 600_000
    ]
    reader = build_reader(AllowedRoots(tmp_path), None, ReaderLimits(job_wall_s=300, ocr=None))
    for start in range(0, FUZZ_CASES, FUZZ_AT_ONCE):
        refs = []
        for case in range(start, min(start + FUZZ_AT_ONCE, FUZZ_CASES)):
            rng = random.Random(case)
            source = rng.choice(sources)
            data = bytearray(source.read_bytes())
            for _ in range(rng.randint(1, 12)):
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            kept = rng.randrange(1, len(data)) if rng.random() < 0.25 else len(data)
            name = f"{case}-{source.name}"
            (tmp_path / name).write_bytes(data[:kept])
            refs.append(attached(name))
        for ref, view in zip(refs, reader.read(refs, None, Limits()), strict=True):
            assert (view.error is None) == view.preview_available, ref.file_name
            assert view.error is None or view.error.code in CODES, ref.file_name
            assert view.error is None or view.error.code not in ("NOT_FOUND", "BUDGET_EXHAUSTED"), ref.file_name
            assert "\ufffd" not in view.text_preview, ref.file_name
            (tmp_path / str(ref.storage_path)).unlink()


_TRY_A_CALL = """
import runpy, socket, sys
is_cut = runpy.run_path(sys.argv[1])["_shut_in"]()
call = socket.socket()
call.settimeout(20)
print(is_cut, call.connect_ex(("127.0.0.1", int(sys.argv[2]))))
"""


def test_a_child_reaches_nobody_not_even_this_machine() -> None:
    with socket.create_server(("127.0.0.1", 0)) as here:
        command = [sys.executable, "-I", "-c", _TRY_A_CALL, child_main.__file__, str(here.getsockname()[1])]
        told = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True).stdout.split()
    if told[0] == "False":
        pytest.skip("this system lets no process give up its network")
    assert told[1] != "0"


def test_whether_children_have_a_network_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "a.txt").write_text("甲", encoding="utf-8")
    (tmp_path / "b.txt").write_text("乙", encoding="utf-8")
    with caplog.at_level("INFO"):
        reader = build_reader(AllowedRoots(tmp_path), None)
        for name in ("a.txt", "b.txt"):
            reader.read([attached(name)], None, Limits())
    told = [record.kbw for record in caplog.records if record.message == "attachment.child_network"]  # type: ignore[attr-defined]
    assert [set(fields) for fields in told] == [{"isolated"}]
