"""PDFs beyond plain pages: fonts without a map to letters, fields, notes, what is attached, what is broken."""

from __future__ import annotations

import pytest

from tests.attachment_files import pdf
from tests.attachment_traps import pdf_in_font, pdf_of
from tests.unit.attachments.reading import answer, fault_of, meta_of, text_of

NOTICE = "关于加强管理工作的通知"
BLANK = b"0 0 10 10 re f"
HELVETICA = "/Resources << /Font << /F1 << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >> >>"


class TestFonts:
    @pytest.mark.parametrize("name", ["FangSong_GB2312", "#B7#C2#CB#CE_GB2312"])
    def test_double_bytes_in_a_font_that_says_latin_are_shown_as_chinese(self, name: str) -> None:
        font = f"/Subtype /TrueType /BaseFont /{name} /Encoding /WinAnsiEncoding /FirstChar 0 /LastChar 255"
        assert text_of(pdf_in_font(font, NOTICE.encode("gbk"))) == NOTICE

    def test_a_font_that_is_not_in_the_file_but_names_a_chinese_encoding(self) -> None:
        font = "/Subtype /Type0 /BaseFont /FangSong_GB2312 /Encoding /GBK-EUC-H /DescendantFonts [6 0 R]"
        inside = (
            "<< /Type /Font /Subtype /CIDFontType2 /BaseFont /FangSong_GB2312 "
            "/CIDSystemInfo << /Registry (Adobe) /Ordering (GB1) /Supplement 2 >> /DW 1000 >>"
        )
        assert text_of(pdf_in_font(font, NOTICE.encode("gbk"), inside)) == NOTICE

    def test_accents_of_a_latin_text_stay(self) -> None:
        font = "/Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding"
        words = "élève où ça âgé ÀÉÈÊÇÔÛ"
        assert text_of(pdf_in_font(font, words.encode("cp1252"))) == words

    def test_glyph_numbers_without_a_meaning_are_no_text(self) -> None:
        font = "/Subtype /Type0 /BaseFont /ABCDEE+SimSun /Encoding /Identity-H /DescendantFonts [6 0 R]"
        inside = (
            "<< /Type /Font /Subtype /CIDFontType2 /BaseFont /ABCDEE+SimSun "
            "/CIDSystemInfo << /Registry (Adobe) /Ordering (Identity) /Supplement 0 >> /DW 1000 >>"
        )
        assert (
            fault_of(pdf_in_font(font, bytes.fromhex("123405670 89A0BCD".replace(" ", "")), inside)) == "NO_TEXT_LAYER"
        )


class TestFieldsAndNotes:
    def test_a_form_shows_what_was_filled_in(self) -> None:
        value = "填写的姓名".encode("utf-16-be").hex()
        field = f"<< /Type /Annot /Subtype /Widget /FT /Tx /T (name) /V <FEFF{value}> /Rect [0 0 9 9] >>"
        page = f"{HELVETICA} /Annots [5 0 R 6 0 R]"
        empty = "<< /Type /Annot /Subtype /Widget /FT /Tx /T (other) /Rect [0 0 9 9] >>"
        form = pdf_of(page, b"BT /F1 12 Tf 72 700 Td (Name:) Tj ET", field, empty)
        assert text_of(form) == "Name:\n填写的姓名"

    def test_a_note_on_a_scan_is_text(self) -> None:
        words = "这里请修改".encode("utf-16-be").hex()
        note = f"<< /Type /Annot /Subtype /Text /Contents <FEFF{words}> /Rect [0 0 9 9] >>"
        link = "<< /Type /Annot /Subtype /Link /Contents (where to) /Rect [0 0 9 9] >>"
        assert text_of(pdf_of("/Annots [5 0 R 6 0 R]", BLANK, note, link)) == "这里请修改"

    def test_attached_files_are_named_but_alone_they_are_no_text(self) -> None:
        catalog = "/Names << /EmbeddedFiles << /Names [(data.xml) 5 0 R] >> >>"
        attached = (
            "<< /Type /Filespec /F (data.xml) /UF (data.xml) /EF << /F 6 0 R >> >>",
            "<< /Length 0 >>\nstream\n\nendstream",
        )
        shown = b"BT /F1 12 Tf 72 700 Td (Invoice) Tj ET"
        assert text_of(pdf_of(HELVETICA, shown, *attached, catalog=catalog)).split() == ["Invoice", "附件：data.xml"]
        assert fault_of(pdf_of("", BLANK, *attached, catalog=catalog)) == "NO_TEXT_LAYER"


class TestBroken:
    def test_junk_before_a_wrong_table_behind_and_a_missing_one_do_not_matter(self) -> None:
        good = pdf(["Still readable"])
        wrong = good.replace(b"startxref\n", b"startxref\n9", 1)
        without = good[: good.index(b"xref\n0")] + b"trailer << /Root 1 0 R >>\n"
        for data in (b"HTTP/1.1 200 OK\r\n\r\n" + good, wrong, without, good + b"\0" * 900):
            assert text_of(data) == "Still readable"

    def test_pages_that_point_to_themselves_and_a_file_without_any_are_corrupt(self) -> None:
        head = b"%PDF-1.4\n1 0 obj\n<< /Type /Catalog /Pages 2 0 R >>\nendobj\n"
        tail = b"trailer << /Root 1 0 R /Size 3 >>\n%%EOF\n"
        loop = b"2 0 obj\n<< /Type /Pages /Count 2 /Kids [2 0 R 2 0 R] >>\nendobj\n"
        assert fault_of(head + loop + tail) == "CORRUPT"
        assert fault_of(head + tail) == "CORRUPT"

    def test_an_upload_that_broke_off_is_corrupt_and_a_page_that_is_turned_is_not(self) -> None:
        data = pdf(["Some words"])
        assert fault_of(data[: len(data) // 2]) == "CORRUPT"
        turned = data.replace(b"/MediaBox", b"/Rotate 90 /MediaBox")
        assert answer(turned)["text"] == "Some words"
        assert meta_of(turned)["pageCount"] == 1
