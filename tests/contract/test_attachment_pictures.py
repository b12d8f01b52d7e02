"""Pictures and scans: read with the extra ``ocr``, told as such without it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tasks.ports import AttachmentReader
from tests.contract.test_attachment_reader import attached, code_of, read_one, squeezed
from worker.adapters.attachments import build_reader
from worker.adapters.attachments.child import ocr_limits
from worker.adapters.attachments.reader import ReaderLimits
from worker.paths import AllowedRoots


class TestPictures:
    def test_without_the_extra_a_picture_has_no_text_and_the_team_is_told_what_would_help(self, tmp_path: Path) -> None:
        (tmp_path / "图.png").write_bytes(b"\x89PNG\r\n\x1a\n\0")
        view = read_one(build_reader(AllowedRoots(tmp_path), None, ReaderLimits(ocr=None)), attached("图.png"))
        assert code_of(view) == "NO_TEXT_LAYER"
        assert view.error is not None
        assert "可选组件 ocr" in view.error.message

    @pytest.fixture
    def with_ocr(self, tmp_path: Path) -> AttachmentReader:
        if ocr_limits() is None:
            pytest.skip("the extra ocr is not installed: pip install '.[ocr]'")
        return build_reader(AllowedRoots(tmp_path), tmp_path / "cache")

    def test_a_picture_and_a_scanned_page_are_read(self, with_ocr: AttachmentReader, tmp_path: Path) -> None:
        page = drawn("Restart the gateway nightly", "Chapter 3: Backups")
        page.save(tmp_path / "a.png")
        page.save(tmp_path / "scan.pdf")
        for name in ("a.png", "scan.pdf"):
            view = read_one(with_ocr, attached(name))
            assert [squeezed(line) for line in view.text_preview.split("\n")] == [
                "Restartthegatewaynightly",
                "Chapter3:Backups",
            ]
            assert view.metadata["ocr"] is True
            assert view.preview_available
        assert view.metadata["pageCount"] == 1

    def test_a_picture_without_words_or_a_broken_one_is_told_without_advice(
        self, with_ocr: AttachmentReader, tmp_path: Path
    ) -> None:
        drawn().save(tmp_path / "blank.png")
        (tmp_path / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n\0")
        for name in ("blank.png", "broken.png"):
            view = read_one(with_ocr, attached(name))
            assert code_of(view) == "NO_TEXT_LAYER"
            assert view.error is not None
            assert "可选组件" not in view.error.message


def drawn(*lines: str) -> Any:
    """A white picture with these lines; needs Pillow, which the extra brings."""
    from PIL import Image, ImageDraw, ImageFont

    page = Image.new("RGB", (700, 240), "white")
    for number, line in enumerate(lines):
        ImageDraw.Draw(page).text((30, 30 + 90 * number), line, fill="black", font=ImageFont.load_default(36))
    return page
