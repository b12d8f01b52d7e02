"""Files made to hurt: each ends in a typed answer, quickly, without leaking."""

from __future__ import annotations

import io
import time
import zipfile

import pytest

from tests.attachment_files import docx, inline, xlsx, zipped
from tests.unit.attachments.reading import answer, fault_of, text_of

LAUGHS = '<?xml version="1.0"?><!DOCTYPE a [<!ENTITY x "{}"><!ENTITY y "&x;&x;&x;">]><a>&y;</a>'


def test_entities_are_refused_and_never_resolved() -> None:
    external = '<?xml version="1.0"?><!DOCTYPE d [<!ENTITY f SYSTEM "file:///etc/passwd">]><w:document><w:t>&f;</w:t></w:document>'
    assert fault_of(docx("x", more={"word/document.xml": external})) == "FORBIDDEN_XML"
    assert fault_of(LAUGHS.encode(), "a.xml") == "FORBIDDEN_XML"
    assert fault_of(LAUGHS.encode("utf-16"), "a.xml") == "FORBIDDEN_XML"


def bomb(kind: str, size: int) -> bytes:
    buffer = io.BytesIO(docx("x", more={}))
    with (
        zipfile.ZipFile(buffer, "a", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open(f"word/{kind}.xml", "w") as part,
    ):
        part.write(b"<w:footnotes>")
        for _ in range(size // 1_000_000):
            part.write(b" " * 1_000_000)
        part.write(b"</w:footnotes>")
    return buffer.getvalue()


def test_a_part_that_unpacks_without_end_is_left_where_it_says_nothing() -> None:
    data = bomb("footnotes", 270_000_000)
    buffer = io.BytesIO(data)
    with zipfile.ZipFile(buffer, "a") as archive:
        archive.writestr(
            "word/_rels/document.xml.rels",
            '<Relationships><Relationship Id="a" Type="x/footnotes" Target="footnotes.xml"/></Relationships>',
        )
    found = answer(buffer.getvalue())
    assert found["text"] == "x"
    assert found["truncated"] is True


def test_deep_nesting_and_long_attributes_end() -> None:
    deep = "<w:p>" * 200_000 + "<w:r><w:t>深处</w:t></w:r>" + "</w:p>" * 200_000
    assert text_of(docx(body=deep)) == "深处"
    assert text_of(b"[" * 300_000, "a.json").startswith("[[[")


def test_two_cells_that_span_the_whole_sheet_are_two_cells() -> None:
    rows = f'<row r="1">{inline("A1", "起点")}</row><row r="1048576">{inline("XFD1048576", "终点")}</row>'
    assert text_of(xlsx({"表": rows})).split() == ["[表]", "起点", "终点"]  # and not a TIMEOUT


@pytest.mark.parametrize("kept", [10, 200, -20])
def test_a_cut_package_is_corrupt(kept: int) -> None:
    assert fault_of(docx("正文" * 50)[:kept]) == "CORRUPT"


def test_a_member_with_wrong_checksum_or_method_is_corrupt() -> None:
    data = bytearray(docx("正文" * 500))
    at = data.index(b"word/document.xml") + 60
    data[at : at + 8] = b"\xff" * 8
    assert fault_of(bytes(data)) == "CORRUPT"
    other = bytearray(zipped({"[Content_Types].xml": "x", "word/document.xml": "<a/>"}))
    for mark, offset in ((b"PK\3\4", 8), (b"PK\1\2", 10)):
        at = other.rindex(mark)
        other[at + offset] = 99
    assert fault_of(bytes(other)) == "CORRUPT"


def test_html_made_slow_for_parsers_ends() -> None:
    for piece in (b"<a ", b"<!--", b"&#", b"<a '", b'<p "><', b"<script>", b"<", b"<![CDATA[", b"<div><nav>"):
        started = time.process_time()
        found = answer(b"<html>" + piece * 100_000, "a.html")
        assert "TIMEOUT" not in (found.get("fault"), found["meta"].get("incomplete")), piece
        assert time.process_time() - started < 20, piece


def test_megabytes_of_blanks_do_not_hide_the_text_or_cost_time() -> None:
    started = time.process_time()
    blanks = " " * 3_000_000
    assert text_of((blanks[:390_000] + "末尾").encode(), "a.txt") == " 末尾"
    assert text_of(docx(body=f"<w:p><w:r><w:t>头{blanks}尾</w:t></w:r></w:p>")).split() == ["头", "尾"]
    assert text_of(f"<html><p>{blanks}<pre>{blanks}末尾</pre>".encode(), "a.html") == "末尾"
    assert fault_of((" \n" * 150_000).encode(), "a.txt") == "EMPTY_FILE"
    assert time.process_time() - started < 20


def test_endless_headers_and_references_cost_little() -> None:
    started = time.process_time()
    head = b"From: a@b.cn\nTo: c@d.cn\nSubject: "
    assert "张" in text_of(head + b"=?utf-8?B?5byg?= " * 200_000 + b"\n\nx", "a.eml")
    assert text_of(b"<html><p>" + b"&nbsp;" * 300_000 + b"x&amp;y", "a.html") == "x&y"
    assert time.process_time() - started < 20
