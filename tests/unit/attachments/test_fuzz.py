"""Seeded mutations of files of every format: whatever the bytes, a typed answer; ``KBW_FUZZ_CASES`` sets the number."""

from __future__ import annotations

import os
import random

from tests.attachment_files import (
    doc,
    docx,
    inline,
    msg,
    opendocument,
    pdf,
    ppt,
    pptx,
    shape,
    word95,
    xlsb,
    xlsx,
    zipped,
)
from tests.attachment_traps import doc_with_rows, doc_with_unshown, excel4, excel95, pdf_of
from tests.unit.attachments.reading import answer
from tests.unit.attachments.test_decode import SIMPLIFIED, TRADITIONAL
from worker.adapters.attachments.faults import CODES

CASES = int(os.environ.get("KBW_FUZZ_CASES", "150"))
MAIL = f"From: a@b.cn\nTo: c@d.cn\nSubject: =?gb2312?B?vL62yA==?=\nMIME-Version: 1.0\n\n{SIMPLIFIED}"
TABLE = (
    '<table:table table:name="a"><table:table-row><table:table-cell>'
    f"<text:p>{SIMPLIFIED}</text:p></table:table-cell></table:table-row></table:table>"
)
SEEDS: dict[str, bytes] = {
    "a.docx": docx(SIMPLIFIED, TRADITIONAL),
    "a.xlsx": xlsx({"表": f'<row r="1">{inline("A1", SIMPLIFIED)}<c r="B1"><v>43363</v></c></row>'}),
    "a.xlsb": xlsb("表", [[SIMPLIFIED, 1, 0.5, 43363.0]], [SIMPLIFIED]),
    "a.pptx": pptx(shape(SIMPLIFIED), shape(TRADITIONAL)),
    "a.odt": opendocument("text", f"<text:p>{SIMPLIFIED}</text:p>"),
    "a.ods": opendocument("spreadsheet", TABLE),
    "a.epub": zipped({"mimetype": "application/epub+zip", "c.html": f"<p>{SIMPLIFIED}</p>"}),
    "a.zip": zipped({"文档.txt": "x", "b/c.txt": "y"}),
    "a.doc": doc(SIMPLIFIED),
    "table.doc": doc_with_rows([["甲", "乙"], ["丙", ""]], SIMPLIFIED),
    "changes.doc": doc_with_unshown((SIMPLIFIED, 0), ("甲", 0x0800), ("乙", 0x083C)),
    "b.doc": word95(SIMPLIFIED, "gb18030"),
    "a.ppt": ppt(SIMPLIFIED, TRADITIONAL),
    "a.msg": msg("主题", SIMPLIFIED, attached="a.docx"),
    "a.rtf": b"{\\rtf1\\ansi\\ansicpg936{\\fonttbl{\\f0\\fcharset134 S;}}\\f0 \\'d6\\'d0\\'ce\\'c4\\u20320?\\par text}",
    "a.html": f"<html><meta charset=gbk><p>{SIMPLIFIED}</p><table><tr><td>a</table>".encode("gb18030"),
    "a.xml": f'<?xml version="1.0" encoding="GBK"?><a b="c">{SIMPLIFIED}</a>'.encode("gb18030"),
    "a.eml": MAIL.encode("gb18030"),
    "a.txt": TRADITIONAL.encode("big5"),
    "b.txt": SIMPLIFIED.encode("utf-16"),
    "a.json": b'{"a": "\\u4f60\\u597d", "b": [1, 2, {"c": null}]}',
    "a.pdf": pdf(["Some words", "More words"]),
    "form.pdf": pdf_of("/Annots [5 0 R]", b"", "<< /Type /Annot /Subtype /Widget /V (words) /Rect [0 0 9 9] >>"),
    "a.xls": excel95("表", [["姓名", "年龄"]], 936, "gbk"),
    "b.xls": excel4(["姓名", "年龄"], 936, "gbk"),
    "a.ofd": zipped({"OFD.xml": "<a><DocRoot>d.xml</DocRoot></a>", "d.xml": '<Page BaseLoc="d.xml"/>'}),
    "a.ipynb": b'{"cells": [{"source": ["a"], "outputs": [{"text": ["b"]}, {"data": {"text/plain": "c"}}]}]}',
    "a.fods": f'<office:document xmlns:office="urn:oasis:names:tc:opendocument:x">{TABLE}</office:document>'.encode(),
}  # fmt: skip


def mutated(data: bytes, rng: random.Random) -> bytes:
    """The bytes with a few flipped, cut off, doubled or overwritten."""
    out = bytearray(data)
    for _ in range(rng.randint(1, 8)):
        at = rng.randrange(len(out))
        match rng.randrange(5):
            case 0:
                out[at] ^= 1 << rng.randrange(8)
            case 1:
                out[at : at + 4] = rng.randbytes(4)
            case 2:
                del out[at : at + rng.randint(1, 30)]
            case 3:
                out[at:at] = out[at : at + rng.randint(1, 60)]
            case 4:
                out = out[: max(1, at)] if rng.random() < 0.3 else out
        if not out:
            out = bytearray(b"x")
    return bytes(out)


def test_a_mutated_file_gives_text_or_one_of_our_codes() -> None:
    for case in range(CASES):
        rng = random.Random(case)
        name = rng.choice(sorted(SEEDS))
        found = answer(mutated(SEEDS[name], rng), name)
        if "fault" in found:
            assert found["fault"] in CODES, (case, name, found)
        else:
            assert str(found["text"]).strip(), (case, name)
            assert "\ufffd" not in str(found["text"]), (case, name)
            assert "\0" not in str(found["text"]), (case, name)
