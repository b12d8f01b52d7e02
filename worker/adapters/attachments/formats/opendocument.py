"""OpenDocument text, sheets and slides: streamed, repeated cells bounded, tracked deletions left out."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import BinaryIO

from worker.adapters.attachments.formats.package import Package
from worker.adapters.attachments.formats.sink import EnoughError, FormatError, Sink
from worker.adapters.attachments.formats.tables import read_sheets, row_text
from worker.adapters.attachments.formats.xml_stream import Attributes, local, parse

_SKIPPED = frozenset({"tracked-changes", "forms", "binary-data", "ruby-text", "scripts", "desc", "page-number"})
_WHO_AND_WHEN = frozenset({"dc:creator", "dc:date", "meta:creator-initials", "loext:sender-initials"})
"""Of a comment; a date field of the text is a ``text:date``."""
_SPACE = re.compile(r"[ \t\r\n]+")
_MAX_REPEAT = 64
_MAX_BLANKS = 100
_MAX_COMMENTS = 1_000


def extract(file: BinaryIO, sink: Sink, kind: str) -> None:
    """The text of ``content.xml``; of a text document also of its headers and footers."""
    package = Package(file)
    if b"encryption-data" in package.read("META-INF/manifest.xml", 1024 * 1024):
        raise FormatError("PASSWORD_PROTECTED", "encrypted document")
    if "content.xml" not in package:
        raise FormatError("CORRUPT", "content.xml is missing")
    read_content(package.blocks("content.xml"), sink, kind)
    if kind == "odt" and "styles.xml" in package:
        outside = _Body(sink, only_inside=("header", "footer"))
        parse(package.blocks("styles.xml"), outside.start, outside.end, outside.data)


def read_content(content: Iterable[bytes], sink: Sink, kind: str) -> None:
    """The body of ``content.xml``, or of a file that is one flat XML."""
    if kind == "ods":
        _read_sheets(content, sink)
        return
    body = _Body(sink, only_inside=("body",))
    parse(content, body.start, body.end, body.data)
    if body.pages:
        sink.meta["slideCount"] = body.pages
    if body.comments:
        sink.write("\n" + "".join(body.comments))


class _Body:
    """Paragraphs to lines, table cells to ``a | b``."""

    def __init__(self, sink: Sink, only_inside: tuple[str, ...] = ()) -> None:
        self._sink = sink
        self._skip = 0
        self._paragraphs = 0
        self._cells = 0
        self._inside = 0
        self._only_inside = only_inside
        self.pages = 0
        self.comments: list[str] = []  # they stand in the middle of a sentence, and are shown behind it all
        self._in_comment = 0
        self._mark = ""  # a page's number, written with its first text: alone it is none

    def start(self, tag: str, attrs: Attributes) -> None:
        name = local(tag)
        if self._skip or name in _SKIPPED or tag in _WHO_AND_WHEN:
            self._skip += 1
            return
        self._in_comment += name == "annotation"
        if name in self._only_inside:
            self._inside += 1
        if name in ("p", "h"):
            self._paragraphs += 1
        elif name == "page" and tag != "text:page":
            self.pages += 1
            self._mark = f"\n[{self.pages}] "
        elif name == "table-cell":
            self._cells += 1
        elif self._paragraphs:
            _write_blank(name, attrs, self._sink)

    def end(self, tag: str) -> None:
        if self._skip:
            self._skip -= 1
            return
        name = local(tag)
        if name in self._only_inside:
            self._inside -= 1
        self._in_comment -= name == "annotation"
        if name in ("p", "h"):
            self._paragraphs -= 1
            self._write(" " if self._cells else "\n")
        elif name == "table-cell":
            self._cells -= 1
            self._sink.write("| ")
        elif name == "table-row":
            self._sink.write("\n")

    def data(self, text: str) -> None:
        if self._paragraphs and not self._skip and (self._inside or not self._only_inside):
            if self._mark and text.strip():
                self._sink.write(self._mark)
                self._mark = ""
            self._write(_SPACE.sub(" ", text))  # more of it says nothing: ODF 1.3 part 3, 6.1.2

    def _write(self, text: str) -> None:
        if self._in_comment:
            begins = not self.comments or self.comments[-1].endswith("\n")
            self.comments.append(text.lstrip(" ") if begins else text)
        else:
            self._sink.write(text)


def _write_blank(name: str, attrs: Attributes, sink: Sink) -> None:
    if name == "tab":
        sink.write("\t")
    elif name == "line-break":
        sink.write("\n")
    elif name == "s":
        sink.write(" " * min(_whole(attrs, "c"), _MAX_BLANKS))


def _whole(attrs: Attributes, name: str) -> int:
    for key, value in attrs.items():
        if local(key) == name and value.isdigit():
            return int(value[:9])
    return 1


def _read_sheets(content: Iterable[bytes], sink: Sink) -> None:
    """One pass over all sheets; each is kept apart, so that they can share the preview."""
    sheets = _Sheets(sink.limit)
    try:
        parse(content, sheets.start, sheets.end, sheets.data)
        cut = False
    except EnoughError:
        cut = True

    def replay(index: int, part: Sink) -> None:
        part.write(sheets.texts[index])
        if sheets.full[index] or (cut and index == len(sheets.texts) - 1):
            raise EnoughError

    read_sheets(sheets.names, replay, sink)
    if sheets.comments:
        sink.write("\n" + "\n".join(sheets.comments))


class _Sheets:
    """Rows of each table; a table that has enough is passed over quietly until the next begins."""

    def __init__(self, limit: int) -> None:
        self.names: list[str] = []
        self.texts: list[str] = []
        self.full: list[bool] = []
        self._limit = limit
        self._total = 0
        self._cells: dict[int, str] = {}
        self._column = 0
        self._text: list[str] = []
        self._in_cell = False
        self._depth = 0
        self._skip = 0
        self.comments: list[str] = []  # shown behind the sheets, as those of an xlsx are
        self._in_comment = False

    def start(self, tag: str, attrs: Attributes) -> None:
        name = local(tag)
        if self._skip or name in _SKIPPED or tag in _WHO_AND_WHEN:
            self._skip += 1
        elif name == "annotation":
            self._in_comment = True
            self.comments.append("")
        elif name == "table":
            self._depth += 1
            if self._depth == 1:
                self._new_sheet(next((value for key, value in attrs.items() if local(key) == "name"), ""))
        elif name == "table-row":
            self._column, self._cells = 0, {}
        elif name in ("table-cell", "covered-table-cell"):
            self._in_cell, self._text = True, []
            self._repeat = _whole(attrs, "number-columns-repeated")
        elif name == "p" and self._in_comment:
            self.comments[-1] += " "
        elif self._in_cell and name == "p" and self._text:
            self._text.append(" ")

    def end(self, tag: str) -> None:
        if self._skip:
            self._skip -= 1
            return
        name = local(tag)
        if name == "annotation":
            self._in_comment = False
        elif name in ("table-cell", "covered-table-cell"):
            if text := "".join(self._text).strip():
                for offset in range(min(self._repeat, _MAX_REPEAT)):
                    self._cells[self._column + offset] = text
            self._column += self._repeat
            self._in_cell = False
        elif name == "table-row" and self._cells and self.texts:
            self._add_row(row_text(self._cells))
        elif name == "table":
            self._depth -= 1

    def data(self, text: str) -> None:
        if self._skip:
            return
        if self._in_comment:
            if len(self.comments) <= _MAX_COMMENTS:
                self.comments[-1] += text
        elif self._in_cell and not (self.full and self.full[-1]):
            self._text.append(text)

    def _new_sheet(self, name: str) -> None:
        self.names.append(name)
        self.texts.append("")
        self.full.append(False)

    def _add_row(self, row: str) -> None:
        wanted = self._limit if self._total < self._limit else self._limit // 10
        if len(self.texts[-1]) > wanted:
            self.full[-1] = True
            if self._total > 2 * self._limit:
                raise EnoughError
            return
        self.texts[-1] += row
        self._total += len(row)
