"""Old Office, RTF, mail, pages, books, archives and plain text."""

from __future__ import annotations

import base64
import json

import pytest

from tests.attachment_files import doc, msg, ole, pdf, ppt, word95, zipped
from tests.attachment_traps import doc_with_rows, doc_with_unshown
from tests.unit.attachments.reading import answer, fault_of, meta_of, text_of
from tests.unit.attachments.test_decode import SIMPLIFIED, TRADITIONAL
from worker.adapters.attachments.formats.rtf import unpacked

PAGE = "<html><head><title>标题</title><script>var x = 1 < 2;</script><style>p{}</style></head><body>{}</body></html>"


class TestOldOffice:
    def test_a_word_97_document_in_chinese_with_a_field_and_a_table(self) -> None:
        text = '报告\r甲\x07乙\x07\x07\x13 HYPERLINK "http://x" \x14链接\x15尾\r\x13 PAGE \x153'
        assert text_of(doc(text)) == "报告\n甲\t乙\t\t链接尾\n3"

    @pytest.mark.parametrize("narrow", ["", "gb18030"])
    def test_the_rows_of_a_table_are_lines_also_with_empty_cells(self, narrow: str) -> None:
        rows = [["服务", "", "负责人"], ["检索服务", "一组", ""]]
        shown = [line.strip("\t") for line in text_of(doc_with_rows(rows, "表后", narrow=narrow)).split("\n")]
        assert shown == ["服务\t\t负责人", "检索服务\t一组", "表后"]

    def test_what_was_deleted_with_changes_tracked_or_is_hidden_is_not_shown(self) -> None:
        deleted, hidden, bold = 0x0800, 0x083C, 0x0835
        file = doc_with_unshown(("甲", 0), ("删去", deleted), ("乙", bold), ("隐藏", hidden), ("丙", 0))
        assert text_of(file) == "甲乙丙"

    def test_a_typographic_sign_in_an_english_document_stays(self) -> None:
        assert text_of(doc("That’s it, isn’t it?", narrow="cp1252")) == "That’s it, isn’t it?"

    def test_eight_bit_pieces_in_a_chinese_code_page_are_no_mojibake(self) -> None:
        assert text_of(doc(SIMPLIFIED, narrow="gb18030")) == SIMPLIFIED
        assert text_of(doc("Caf\xe9 cr\xe8me", narrow="cp1252")) == "Café crème"

    def test_text_outside_the_piece_table_is_found(self) -> None:
        assert text_of(doc(SIMPLIFIED, pieces=False)) == SIMPLIFIED

    @pytest.mark.parametrize(("text", "codec"), [(SIMPLIFIED, "gb18030"), (TRADITIONAL, "big5"), ("Plain", "ascii")])
    def test_word_95_names_no_code_page(self, text: str, codec: str) -> None:
        assert text_of(word95(text, codec)) == text

    def test_slides_without_the_master(self) -> None:
        assert text_of(ppt("标题", "要点")) == "标题\n要点"
        assert meta_of(ppt("标题", "要点"))["slideCount"] == 2

    def test_a_message_in_unicode_and_in_big5(self) -> None:
        assert (
            text_of(msg("会议通知", "明天三点", attached="议程.docx"))
            == "主题: 会议通知\n\n明天三点\n\n附件：议程.docx"
        )
        assert TRADITIONAL in text_of(msg("會議通知", TRADITIONAL, "big5"))

    def test_a_message_whose_body_is_a_page_and_one_whose_body_is_unreadable(self) -> None:
        page = "<html><head><meta charset={}></head><p>网页正文内容</p></html>"
        head = {"__properties_version1.0": bytes(32), "__substg1.0_0037001F": "通知".encode("utf-16-le")}
        wide = head | {"__substg1.0_1013001F": page.format("x").encode("utf-16-le")}
        narrow = head | {"__substg1.0_10130102": page.format("gb2312").encode("gbk")}
        for streams in (wide, narrow):
            assert text_of(ole(streams)).split() == ["主题:", "通知", "网页正文内容"]
        broken = ole(head | {"__substg1.0_10130102": bytes(range(256)) * 16})
        assert text_of(broken) == "主题: 通知"
        assert meta_of(broken)["incomplete"] == "BINARY_FILE"

    def test_encryption_of_every_kind_is_told(self) -> None:
        assert fault_of(doc("x", encrypted=True)) == "PASSWORD_PROTECTED"
        assert fault_of(ppt("x", token=0xF3D1C4DF)) == "PASSWORD_PROTECTED"
        assert fault_of(ole({"EncryptedPackage": b"x", "EncryptionInfo": b"y"})) == "PASSWORD_PROTECTED"
        filepass = bytes.fromhex("0908100000060500") + bytes(12) + bytes.fromhex("2f000200") + b"\1\0"
        assert fault_of(ole({"Workbook": filepass})) == "PASSWORD_PROTECTED"

    def test_other_containers_are_unsupported_and_broken_ones_corrupt(self) -> None:
        assert fault_of(ole({"VisioDocument": b"x"})) == "UNSUPPORTED_TYPE"
        assert fault_of(doc("x")[:600]) == "CORRUPT"
        assert fault_of(ole({"Workbook": b"\x09\x08"})) == "CORRUPT"


class TestRtf:
    def test_code_pages_unicode_escapes_and_skipped_groups(self) -> None:
        gbk = "".join(f"\\'{byte:02x}" for byte in "中文".encode("gbk"))
        big5 = "".join(f"\\'{byte:02x}" for byte in "繁體".encode("big5"))
        rtf = (
            "{\\rtf1\\ansi\\ansicpg936{\\fonttbl{\\f0\\fcharset134 SimSun;}{\\f1\\fcharset136 Ming;}}"
            "{\\*\\generator Word}{\\pict\\wmetafile8 0102}{\\info{\\title Secret}}"
            f"\\f0 {gbk}\\par {{\\f1 {big5}}}\\par \\uc1\\u20320?\\u22909? \\{{x\\}}\\tab y}}"
        )
        assert text_of(rtf.encode()) == "中文\n繁體\n你好 {x}\ty"

    def test_binary_data_and_surrogate_pairs(self) -> None:
        assert text_of(b"{\\rtf1 a{\\pict\\bin5 }}}}}}b\\uc0\\u-10179\\u-8704 c}") == "ab\U0001f600c"

    def test_a_rtf_cut_off_in_the_middle_shows_what_is_there(self) -> None:
        assert text_of(b"{\\rtf1 {\\b half a sen") == "half a sen"

    def test_shapes_notes_and_headers_are_lines_of_their_own_and_hidden_text_is_not_shown(self) -> None:
        rtf = (
            b"{\\rtf1\\ansi body{\\footnote note}{\\header head}{\\v hidden}{\\deleted gone}{\\*\\annotation remark}"
            b"{\\shp{\\*\\shpinst{\\sp{\\sn wzName}{\\sv Box 1}}{\\shptxt box}}}{\\*\\unknown x} end}"
        )
        assert text_of(rtf).split("\n") == ["body", "note", "head", "remark", "box end"]

    def test_what_only_repeats_a_mails_page_is_left_out(self) -> None:
        rtf = (
            b"{\\rtf1\\fromhtml1 {\\*\\htmltag64 <p>}\\htmlrtf {\\b\\htmlrtf0 words"
            b"\\htmlrtf }\\par\\htmlrtf0 {\\*\\htmltag72 </p>}}"
        )
        assert text_of(rtf) == "words"

    def test_the_old_systems_letters(self) -> None:
        assert text_of(b"{\\rtf1\\mac Caf\\'8e}") == "Caf\xe9"

    def test_the_packed_form_of_outlook(self) -> None:
        """The example of [MS-OXRTFCP] 4.1."""
        packed = bytes.fromhex(
            "2d0000002b0000004c5a4675f1c5c7a703000a00726370673132354232 0af32068656c090020627705b06c647d0a800fa0"
        )
        assert unpacked(packed) == b"{\\rtf1\\ansi\\ansicpg1252\\pard hello world}\r\n"
        assert text_of(ole({"__properties_version1.0": bytes(32), "__substg1.0_10090102": packed})) == "hello world"


class TestPagesAndMarkup:
    def test_scripts_styles_and_navigation_are_left_out(self) -> None:
        body = (
            "<nav>菜单</nav><div>第一段</div><p>"
            + "正文" * 120
            + "</p><footer>版权</footer><table><tr><td>a<td>b</table>"
        )
        text = text_of(PAGE.replace("{}", body).encode())
        assert "标题\n第一段" in text.replace("\n\n", "\n")
        assert all(word not in text for word in ("var x", "p{}", "菜单", "版权"))

    def test_a_row_of_a_table_is_a_line_whatever_is_in_its_cells(self) -> None:
        row = "<tr><td><p>甲</p><td><div>乙<br>丙</div></td></tr>"
        assert text_of(f"<html><table>{row}{row}</table><p>后</p>".encode()).split() == [*"|甲|乙丙" * 2, "后"]
        assert [
            line for line in text_of(f"<table>{row}<tr><td>丁</table>后".encode(), "a.html").split("\n") if line
        ] == [
            "|  甲  |  乙 丙",
            " | 丁",
            "后",
        ]

    def test_a_page_that_is_all_navigation_is_shown_all_the_same(self) -> None:
        assert "菜单" in text_of(PAGE.replace("{}", "<nav>菜单</nav>").encode())

    @pytest.mark.parametrize("declared", ["gb2312", "utf-8", "iso-8859-1", ""])
    def test_a_page_in_gbk_is_right_whatever_it_declares(self, declared: str) -> None:
        meta = f'<meta http-equiv="Content-Type" content="text/html; charset={declared}">' if declared else ""
        assert SIMPLIFIED in text_of(f"<html><head>{meta}</head><p>{SIMPLIFIED}</p></html>".encode("gb18030"))

    def test_xml_is_shown_as_written_also_in_gbk(self) -> None:
        xml = '<?xml version="1.0" encoding="GBK"?>\n<配置 名="值">内容</配置>'
        assert text_of(xml.encode("gbk"), "a.xml") == xml
        assert meta_of(xml.encode("gbk"), "a.xml")["encoding"] == "gb18030"

    def test_an_entity_that_is_only_talked_about_is_no_entity(self) -> None:
        for xml in ("<!-- <!ENTITY a> --><r>正文</r>", '<r><![CDATA[<!ENTITY a "b">]]>正文</r>'):
            assert "正文" in text_of(xml.encode(), "a.xml")
        assert fault_of(b'<!DOCTYPE r [<!-- --> <!ENTITY a "b">]><r>&a;</r>', "a.xml") == "FORBIDDEN_XML"

    def test_office_xml_is_shown_as_its_text(self) -> None:
        body = "<w:binData>QUJD</w:binData><w:p><w:t>正文</w:t></w:p>"
        xml = f'<?xml version="1.0"?><w:wordDocument xmlns:w="w">{body}</w:wordDocument>'
        assert text_of(xml.encode()) == "正文"


class TestMail:
    def test_plain_text_is_preferred_headers_are_decoded_attachments_named(self) -> None:
        subject = base64.b64encode("季度报告".encode("gb2312")).decode()
        name = base64.b64encode("附件表.xlsx".encode()).decode()
        mail = (
            "From: =?utf-8?B?5byg5LiJ?= <a@b.cn>\r\nTo: c@d.cn\r\n"
            f"Subject: =?gb2312?B?{subject}?=\r\nMIME-Version: 1.0\r\n"
            'Content-Type: multipart/mixed; boundary="B"\r\n\r\n'
            '--B\r\nContent-Type: multipart/alternative; boundary="C"\r\n\r\n'
            "--C\r\nContent-Type: text/plain; charset=gbk\r\nContent-Transfer-Encoding: base64\r\n\r\n"
            + base64.b64encode(SIMPLIFIED.encode("gbk")).decode()
            + "\r\n--C\r\nContent-Type: text/html; charset=utf-8\r\n\r\n<p>网页版</p>\r\n--C--\r\n"
            f'--B\r\nContent-Type: application/octet-stream; name="=?utf-8?B?{name}?="\r\n'
            "Content-Disposition: attachment\r\n\r\nUEsDBA==\r\n--B--\r\n"
        )
        text = text_of(mail.encode(), "a.eml")
        assert "主题: 季度报告" in text
        assert "发件人: 张三 <a@b.cn>" in text
        assert SIMPLIFIED in text
        assert "附件：附件表.xlsx" in text
        assert "网页版" not in text

    def test_raw_eight_bit_headers_and_bodies_without_charset(self) -> None:
        mail = f"From: a@b.cn\nTo: c@d.cn\nSubject: {SIMPLIFIED[:20]}\n\n{SIMPLIFIED}".encode("gb18030")
        assert f"主题: {SIMPLIFIED[:20]}\n" in text_of(mail, "a.eml")
        assert SIMPLIFIED in text_of(mail, "a.eml")

    def test_a_page_only_mail_and_a_forwarded_one(self) -> None:
        inner = "From: x@y.cn\nSubject: =?utf-8?B?5YaF5bGC?=\nContent-Type: text/html; charset=utf-8\n\n<p>里面的话</p>"
        mail = (
            'From: a@b.cn\nSubject: fwd\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="B"\n\n'
            f"--B\nContent-Type: message/rfc822\n\n{inner}\n--B--\n"
        )
        text = text_of(mail.encode(), "a.eml")
        assert text.index("主题: fwd") < text.index("主题: 内层") < text.index("里面的话")

    def test_a_mail_that_is_nothing_but_a_forwarded_one_shows_its_headers(self) -> None:
        mail = (
            "From: a@b.cn\nSubject: fwd\nMIME-Version: 1.0\nContent-Type: message/rfc822\n\nSubject: 内层\n\n里面的话"
        )
        assert text_of(mail.encode(), "a.eml").split() == [
            "主题:",
            "fwd",
            "发件人:",
            "a@b.cn",
            "主题:",
            "内层",
            "里面的话",
        ]

    def test_a_part_that_is_no_text_does_not_take_the_others_along(self) -> None:
        binary = base64.b64encode(bytes(range(256)) * 20).decode()
        mail = (
            'From: a@b.cn\nSubject: x\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="B"\n\n'
            f"--B\nContent-Type: text/plain\nContent-Transfer-Encoding: base64\n\n{binary}\n"
            "--B\nContent-Type: text/plain; charset=utf-8\n\n可读的部分\n--B--\n"
        )
        assert "可读的部分" in text_of(mail.encode(), "a.eml")
        found = answer(mail.encode(), "a.eml")
        assert found["meta"]["incomplete"] == "BINARY_FILE"  # type: ignore[index]
        assert found["truncated"], "what was left out is told as such"


class TestArchivesAndBooks:
    def test_a_listing_has_readable_names(self) -> None:
        gbk = zipped({"PLACEHOLDERNAME.docx": b"x" * 10}).replace(
            b"PLACEHOLDERNAME", "季度报告之一号".encode("gbk") + b"_"
        )
        assert "季度报告之一号_.docx (10 字节)" in text_of(gbk)
        assert "文档/说明.txt" in text_of(zipped({"文档/说明.txt": "x"}))

    def test_an_encrypted_archive_and_an_empty_one(self) -> None:
        data = bytearray(zipped({"a.txt": "secret"}))
        data[6] |= 1
        data[data.index(b"PK\1\2") + 8] |= 1
        assert fault_of(bytes(data)) == "PASSWORD_PROTECTED"
        assert fault_of(zipped({})) == "EMPTY_FILE"

    def test_a_book_is_read_in_its_own_order(self) -> None:
        opf = (
            '<!DOCTYPE package SYSTEM "x.dtd"><package><manifest>'
            '<item id="b" href="b%20b.xhtml"/><item id="a" href="a.xhtml"/></manifest>'
            '<spine><itemref idref="a"/><itemref idref="b"/><itemref idref="gone"/></spine></package>'
        )
        book = {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": '<container><rootfile full-path="OEBPS/c.opf"/></container>',
            "OEBPS/c.opf": opf,
            "OEBPS/a.xhtml": "<html><body><p>第一章</p></body></html>",
            "OEBPS/b b.xhtml": "<html><body><p>第二章</p></body></html>",
        }
        assert text_of(zipped(book)).split() == ["第一章", "第二章"]
        fonts = '<encryption><EncryptionMethod Algorithm="http://www.idpf.org/2008/embedding"/></encryption>'
        assert "第一章" in text_of(zipped(book | {"META-INF/encryption.xml": fonts}))
        drm = '<encryption><EncryptionMethod Algorithm="http://www.w3.org/2001/04/xmlenc#aes128-cbc"/></encryption>'
        assert fault_of(zipped(book | {"META-INF/encryption.xml": drm})) == "PASSWORD_PROTECTED"

    def test_declarations_before_a_chapter_are_not_its_text(self) -> None:
        chapter = '<!DOCTYPE html [<!ENTITY nb "&#160;">]><html><body><p>章节</p></body></html>'
        assert text_of(zipped({"mimetype": "application/epub+zip", "a.xhtml": chapter})) == "章节"


class TestInvoicesAndNotebooks:
    def test_an_ofd_shows_the_text_of_its_pages_in_order(self) -> None:
        page = (
            '<ofd:Page xmlns:ofd="o"><ofd:TextObject><ofd:TextCode X="1">{}</ofd:TextCode></ofd:TextObject></ofd:Page>'
        )
        pages = "".join(f'<ofd:Page ID="{n}" BaseLoc="Pages/Page_{n}/Content.xml"/>' for n in (1, 0, 9))
        invoice = {
            "OFD.xml": '<ofd:OFD xmlns:ofd="o"><ofd:DocRoot>/Doc_0/Document.xml</ofd:DocRoot></ofd:OFD>',
            "Doc_0/Document.xml": f'<ofd:Document xmlns:ofd="o"><ofd:Pages>{pages}</ofd:Pages></ofd:Document>',
            "Doc_0/Pages/Page_0/Content.xml": page.format("合计 35 元"),
            "Doc_0/Pages/Page_1/Content.xml": page.format("电子发票"),
        }
        assert text_of(zipped(invoice)).split("\n\n") == ["电子发票", "合计 35 元"]
        assert meta_of(zipped(invoice))["pageCount"] == 2
        assert fault_of(zipped({"OFD.xml": "<OFD/>"})) == "CORRUPT"

    def test_a_notebook_shows_what_was_written_and_printed_and_no_pictures(self) -> None:
        cells = [
            {"cell_type": "markdown", "source": ["# 标题\n", "说明"]},
            {
                "cell_type": "code",
                "source": "print(1)",
                "outputs": [{"text": ["1\n"]}, {"data": {"image/png": "iVBO" * 9000}}],
            },
            {"cell_type": "code", "source": "x", "outputs": [{"data": {"text/plain": "7"}}, None]},
        ]
        file = json.dumps({"cells": cells, "nbformat": 4}).encode()
        assert text_of(file, "a.ipynb").split() == ["#", "标题", "说明", "print(1)", "1", "x", "7"]
        assert text_of(b'{"no": "cells"}', "a.ipynb") == '{"no": "cells"}'
        assert text_of(b"[" * 100_000, "a.ipynb").startswith("[[")


class TestPdf:
    def test_pages_are_counted_and_read_only_as_far_as_needed(self) -> None:
        found = answer(pdf(["Page with some words on it"] * 400), limit=200)
        assert found["truncated"] is True
        assert len(str(found["text"])) == 200
        assert meta_of(pdf(["Page with some words on it"] * 400), limit=200)["pageCount"] == 400

    def test_a_scan_has_no_text_layer_and_a_stub_is_corrupt(self) -> None:
        assert fault_of(pdf([""])) == "NO_TEXT_LAYER"
        assert fault_of(b"%PDF-1.7\nnothing more") == "CORRUPT"


class TestTidying:
    def test_what_hides_or_reorders_text_is_dropped_and_symbol_bullets_are_readable(self) -> None:
        assert text_of("安\u200b全\u202e文\U000e0041本\xad".encode(), "a.txt") == "安全文本"
        assert text_of("\uf0b7\xa0第一点".encode(), "a.txt") == "• 第一点"


class TestPlain:
    def test_json_escapes_become_letters_and_structure_stays(self) -> None:
        assert text_of(b'{"a": "\\u4f60\\u597d \\n \\\\u4f60"}', "a.json") == '{"a": "你好 \\n \\\\u4f60"}'

    def test_pairs_of_escapes_are_one_letter_and_half_a_pair_stays(self) -> None:
        assert (
            text_of(b'["\\ud83d\\ude00", "\\uD840\\uDC00", "\\ud83d"]', "a.json")
            == '["\U0001f600", "\U00020000", "\\ud83d"]'
        )

    def test_colours_of_a_terminal_are_not_shown(self) -> None:
        assert text_of(b"\x1b[1;31merror\x1b[0m: disk\x1b[K full", "a.log") == "error: disk full"

    def test_indentation_of_code_and_yaml_stays(self) -> None:
        assert text_of(b"a:\r\n    b: 1\r\n      \r\n\r\n\r\n    c: 2\r\n", "a.yaml") == "a:\n    b: 1\n\n    c: 2"

    def test_white_space_only_is_empty_and_control_characters_are_dropped(self) -> None:
        assert fault_of(b" \r\n\t ", "a.txt") == "EMPTY_FILE"
        assert text_of("中\x00文\ufeff。".encode(), "a.txt") == "中文。"

    def test_a_replacement_character_already_in_the_text_is_not_shown(self) -> None:
        assert text_of("好的\ufffd文本内容很长".encode(), "a.txt") == "好的文本内容很长"
