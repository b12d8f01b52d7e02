"""What a file is, by content; its name decides only between kinds of text."""

from __future__ import annotations

import io

import pytest

from tests.attachment_files import docx, opendocument, pdf, zipped
from worker.adapters.attachments.formats.sink import FormatError, time_budget
from worker.adapters.attachments.formats.sniff import sniff

MAIL = b"From: a@b.cn\r\nTo: c@d.cn\r\nSubject: x\r\nDate: Mon, 1 Jan 2024 00:00:00 +0800\r\n\r\nbody"


@pytest.mark.parametrize(
    ("data", "name", "group", "kind"),
    [
        (docx("x"), "wrong.pdf", "docx", "docx"),
        (pdf(["x"]), "report.docx", "pdf", "pdf"),
        (b"\n\n%PDF-1.4 x", "a", "pdf", "pdf"),
        (b"about %PDF-1.4 headers", "notes.md", "plain", "markdown"),
        (opendocument("spreadsheet", ""), "a.xlsx", "opendocument", "ods"),
        (zipped({"a.txt": "x"}), "a.docx", "zip", "zip"),
        (zipped({"word/a.txt": "x"}), "backup.zip", "zip", "zip"),
        (b"<!DOCTYPE html><p>x", "prices.xls", "html", "html"),
        (b"\xef\xbb\xbf<html><body>x", "a.txt", "html", "html"),
        ("<html><p>中".encode("utf-16"), "a", "html", "html"),
        (b"<?xml version='1.0'?><a/>", "a.txt", "xml", "xml"),
        (b"<project><x/></project>", "a", "xml", "xml"),
        (b"{\\rtf1 x}", "a.doc", "rtf", "rtf"),
        (MAIL, "saved.txt", "eml", "eml"),
        (MAIL, "a", "eml", "eml"),
        (b"MIME-Version: 1.0\r\nContent-Type: multipart/related;\r\n boundary=x\r\n\r\n--x", "page.doc", "eml", "eml"),
        (b"Content-Type: multipart/form-data\n\nhow to", "notes.txt", "plain", "text"),
        (b"To: do this\nFrom: now on\n\nlist", "todo.txt", "plain", "text"),
        (b"Subject: one\nbody", "n.txt", "plain", "text"),
        (b"a,b\n1,2", "x.csv", "plain", "csv"),
        (b'{"a":1}', "noname", "plain", "json"),
        (b"a: 1", "x.yml", "plain", "yaml"),
        (b"int main() {}", "x.c", "plain", "code"),
        (b"<template><div/><p></p></template>", "App.vue", "plain", "code"),
        (b"MZ is how it begins", "x.txt", "plain", "text"),
        (b"MZ\x90\0\3\0\0\0", "x.txt", "other", "exe"),
        (b"BM and so on, a text", "x.txt", "plain", "text"),
        (b"\x89PNG\r\n\x1a\n\0", "x.txt", "image", "png"),
        (b"\0\0\0\x18ftypheic\0\0", "x", "image", "heif"),
        (b"\0\0\0\x18ftypisom\0\0", "x", "other", "mp4"),
        (b"\0\0\0\x18ftyphevc\0\0", "x", "image", "heif"),
        (b"II+\0\x08\0", "x", "image", "tiff"),
        (b"CWS\x0a\0\1", "x", "other", "flash"),
        (b"CWS is a text", "x.txt", "plain", "text"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + docx("x"), "a.docx", "docx", "docx"),
        (b"PK\x03\x04"[:2] + b" as a text", "a.txt", "plain", "text"),
        (opendocument("text-template", ""), "a.ott", "opendocument", "odt"),
        (b'{"cells": []}', "a.ipynb", "notebook", "notebook"),
        (b"7z\xbc\xaf\x27\x1c\0", "x", "other", "7z"),
        (b"\x1f\x8b\x08\0", "x.docx", "other", "gzip"),
    ],
)
def test_content_tells_the_type(data: bytes, name: str, group: str, kind: str) -> None:
    time_budget.start(8, 10)
    assert sniff(io.BytesIO(data), name) == (group, kind)


def test_no_bytes_are_an_empty_file() -> None:
    with pytest.raises(FormatError) as caught:
        sniff(io.BytesIO(b""), "a.docx")
    assert caught.value.code == "EMPTY_FILE"
