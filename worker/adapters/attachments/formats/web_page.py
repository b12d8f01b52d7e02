"""HTML to its readable text: scripts, styles and navigation left out; must not fetch anything."""

from __future__ import annotations

import contextlib
import re
from html.parser import HTMLParser
from typing import BinaryIO

from worker.adapters.attachments.formats.decode import decode
from worker.adapters.attachments.formats.sink import EnoughError, Sink, check_time

_READ = 8 * 1024 * 1024
_FEED = 32_768
_SILENT = frozenset({
    "script", "style", "noscript", "template", "svg", "math", "iframe", "object", "select", "canvas", "audio",
    "video",
})  # fmt: skip
_BOILERPLATE = frozenset({
    "nav", "footer", "aside",
})  # fmt: skip
_BLOCKS = frozenset({
    "p", "div", "br", "hr", "li", "ul", "ol", "dl", "dt", "dd", "tr", "table", "h1", "h2", "h3", "h4", "h5", "h6",
    "section", "article", "header", "main", "blockquote", "pre", "title", "option", "figure", "figcaption", "form",
    "fieldset", "address", "body", "caption",
})  # fmt: skip
_CHARSET = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([A-Za-z0-9_:.-]{2,30})", re.IGNORECASE)
_XML_ENCODING = re.compile(rb"^\s*<\?xml[^>]{0,100}?encoding\s*=\s*[\"']([A-Za-z0-9_:.-]{2,30})[\"']")
_SPACES = re.compile(r"[ \t\r\n\x0c]+")
_ENOUGH_WITHOUT_BOILERPLATE = 200


class _Page(HTMLParser):
    def __init__(self, sink: Sink, silent: frozenset[str]) -> None:
        super().__init__(convert_charrefs=True)
        self._sink = sink
        self._silent = silent
        self._open: list[str] = []
        self._pre = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in self._silent:
            self._open.append(tag)
        elif not self._open:
            self._pre += tag == "pre"
            if tag in _BLOCKS:
                self._sink.write("\n")
            elif tag in ("td", "th"):
                self._sink.write(" | ")
            elif tag == "img" and (alt := dict(attrs).get("alt")):
                self._sink.write(alt)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self._silent:
            self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        if tag in self._open:  # a page that forgets to close one inside another closes both here
            while self._open.pop() != tag:
                pass
        elif not self._open:
            self._pre = max(0, self._pre - (tag == "pre"))
            if tag in _BLOCKS:
                self._sink.write("\n")

    def handle_data(self, data: str) -> None:
        if not self._open:
            self._sink.write(data if self._pre else _SPACES.sub(" ", data))


def extract(file: BinaryIO, sink: Sink, _kind: str) -> None:
    """The readable text of a web page, of at most its first 8 MB."""
    read_page(file.read(_READ), sink)


def read_page(data: bytes, sink: Sink, declared: str | None = None) -> None:
    """``data`` is a whole page; ``declared`` a charset from outside it (a mail header)."""
    found = _CHARSET.search(data[:8192]) or _XML_ENCODING.search(data[:200])
    decoded = decode(data, declared or (found.group(1).decode("ascii") if found else None), cut=len(data) >= _READ)
    sink.meta.update(decoded.facts() | sink.meta)
    read_markup(decoded.text, sink)


def read_markup(text: str, sink: Sink) -> None:
    """The same for text already decoded. When little is left without navigation and footers, they are read too."""
    trial = Sink(sink.limit - sink.visible)
    with contextlib.suppress(EnoughError):
        _feed(text, _Page(trial, _SILENT | _BOILERPLATE))
    if trial.visible < _ENOUGH_WITHOUT_BOILERPLATE:
        _feed(text, _Page(sink, _SILENT))
    else:
        sink.write(trial.text())


def _feed(text: str, page: _Page) -> None:
    for start in range(0, len(text), _FEED):
        check_time()
        page.feed(text[start : start + _FEED])
    page.close()
