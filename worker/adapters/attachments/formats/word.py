"""docx: the body first, then text boxes' parts, notes, headers and comments; streams, never builds a tree."""

from __future__ import annotations

import re
from typing import BinaryIO

from worker.adapters.attachments.formats.package import Package
from worker.adapters.attachments.formats.sink import Sink
from worker.adapters.attachments.formats.xml_stream import Attributes, local, main_part, parse, relations

_BREAKS = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-", "ptab": "\t"}
_SKIPPED = frozenset({"pPr", "instrText", "del", "moveFrom", "rt", "binData", "rPh", "docPartGallery"})
_PAGES = re.compile(rb"<(?:\w+:)?Pages>(\d{1,6})</")
_EXTRAS = ("footnotes", "endnotes", "header", "footer", "comments", "diagramData", "chart")


class OfficeText:
    """Handlers for WordprocessingML and DrawingML: paragraphs to lines, table cells to ``a | b``.

    Of ``mc:AlternateContent`` the fallback is read only when the choice gave no text: both hold the same text box.
    """

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._skip = 0
        self._taking = False
        self._cells = 0
        self._hidden = False
        self._alternatives: list[int] = []

    def start(self, tag: str, attrs: Attributes) -> None:
        """An element begins."""
        if self._skip:
            self._skip += 1
            return
        name = local(tag)
        if name == "t":
            self._taking = not self._hidden
        elif name == "vanish":
            self._hidden = not any(value in ("0", "false", "off") for value in attrs.values())
        elif name in _SKIPPED or (name == "Fallback" and self._alternatives and self._choice_gave_text()):
            self._skip = 1
        elif name in _BREAKS:
            self._sink.write(_BREAKS[name])
        elif name == "AlternateContent":
            self._alternatives.append(self._sink.visible)
        elif name == "tc":
            self._cells += 1

    def end(self, tag: str) -> None:
        """An element ends."""
        if self._skip:
            self._skip -= 1
            return
        name = local(tag)
        if name == "t":
            self._taking = False
        elif name == "r":
            self._hidden = False
        elif name in ("p", "comment"):
            self._sink.write(" " if self._cells else "\n")
        elif name == "tc":
            self._cells -= 1
            self._sink.write("| ")
        elif name == "tr":
            self._sink.write("\n")
        elif name == "AlternateContent" and self._alternatives:
            self._alternatives.pop()

    def data(self, text: str) -> None:
        """Characters."""
        if self._taking and not self._skip:
            self._sink.write(text)

    def _choice_gave_text(self) -> bool:
        return self._sink.visible > self._alternatives[-1]


def read_part(package: Package, part: str, sink: Sink) -> None:
    """All text of one part."""
    text = OfficeText(sink)
    parse(package.blocks(part), text.start, text.end, text.data)


def extract(file: BinaryIO, sink: Sink, _kind: str) -> None:
    """The text of a Word document."""
    package = Package(file)
    if counted := _PAGES.search(package.read("docProps/app.xml", 65_536)):
        sink.meta["pageCount"] = int(counted.group(1))  # as the program that saved it last had counted
    body = main_part(package, "word/")
    read_part(package, body, sink)
    related = list(relations(package, body).values())
    for wanted in _EXTRAS:
        for kind, part in related:
            if kind == wanted:
                sink.write("\n")
                read_part(package, part, sink)
    for kind, part in related:
        if kind == "aFChunk":  # what HTML-to-Word converters write: the text is a web page inside the package
            _read_chunk(package, part, sink)


def _read_chunk(package: Package, part: str, sink: Sink) -> None:
    # imported here: only such files pay for these modules
    if part.lower().endswith((".mht", ".mhtml")):
        from worker.adapters.attachments.formats.mail import read_message

        read_message(package.read(part), sink, cut=False)
    elif part.lower().endswith((".htm", ".html", ".xhtml")):
        from worker.adapters.attachments.formats.web_page import read_page

        read_page(package.read(part), sink)
