"""HTML to its readable text: scripts, styles and navigation left out; must not fetch anything."""

from __future__ import annotations

import contextlib
import re
from html import unescape
from typing import BinaryIO

from worker.adapters.attachments.formats.decode import decode
from worker.adapters.attachments.formats.sink import EnoughError, Sink, check_time

_READ = 8 * 1024 * 1024
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
_TAG = re.compile(r"<(/?)([a-zA-Z][^\s/<>]*+)([^>\"']*+(?:(?:\"[^\"]*+\"|'[^']*+')[^>\"']*+)*)>")
_TAG_LOOSE = re.compile(r"<(/?)([a-zA-Z][^\s/<>]*+)([^>]*+)(?:>|\Z)")
_LONGEST_TEXT = 65_536
_LONGEST_TAG = 4_096
_RAW_END = {name: re.compile(f"</{name}", re.IGNORECASE) for name in ("script", "style")}
_ALT = re.compile(r"\balt\s*=\s*(?:\"([^\"]*)\"|'([^']*)')", re.IGNORECASE)
_SPACES = re.compile(r"[ \t\r\n\x0c]+")
_ENOUGH_WITHOUT_BOILERPLATE = 200


class _Page:
    """Writes the text between tags; inside a silent element nothing."""

    def __init__(self, sink: Sink, silent: frozenset[str]) -> None:
        self._sink = sink
        self._silent = silent
        self._open: list[str] = []
        self._pre = 0
        self._in_cell = False

    def start(self, tag: str, attributes: str) -> None:
        if tag in self._silent:
            if not attributes.endswith("/"):
                self._open.append(tag)
        elif not self._open:
            self._pre += tag == "pre"
            if tag in ("td", "th"):
                self._in_cell = True
                self._sink.write(" | ")
            elif tag in _BLOCKS:
                self._break(tag)
            elif tag == "img" and (alt := _ALT.search(attributes)):
                self.text(alt.group(1) or alt.group(2))

    def end(self, tag: str) -> None:
        if tag in self._open:  # a page that forgets to close one inside another closes both here
            while self._open.pop() != tag:
                pass
        elif not self._open:
            self._pre = max(0, self._pre - (tag == "pre"))
            if tag in ("td", "th"):
                self._in_cell = False
            elif tag in _BLOCKS:
                self._break(tag)

    def _break(self, tag: str) -> None:
        """A new line; inside a table's cell a blank, so that a row stays a line."""
        self._in_cell &= tag not in ("tr", "table")
        self._sink.write(" " if self._in_cell else "\n")

    def text(self, data: str) -> None:
        if not self._open:
            self._sink.write(unescape(data if self._pre else _SPACES.sub(" ", data)))


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
    """Split markup into tags and text in linear time.

    The standard library's parser takes 80 s of CPU for 1 MB of unclosed tags; here each failed look-ahead is bounded
    or consumes the rest of the page.
    """
    at = 0
    number = 0
    while at < len(text):
        number += 1
        if number % 256 == 1:
            check_time()
        mark = text.find("<", at)
        if mark != at:
            end = _text_end(text, at, mark if mark >= 0 else len(text))
            page.text(text[at:end])
            at = end
            continue
        at = _markup(text, at, page)


def _text_end(text: str, at: int, end: int) -> int:
    """Where the next piece of a long text ends: not inside a character reference."""
    if end - at <= _LONGEST_TEXT:
        return end
    end = at + _LONGEST_TEXT
    reference = text.rfind("&", end - 40, end)
    return reference if reference > at else end


def _markup(text: str, at: int, page: _Page) -> int:
    """Handle what begins with ``<`` at ``at``; returns where it ends."""
    if text.startswith("<!--", at):
        return _after(text, "-->", at + 4)
    if text.startswith("<![CDATA[", at):
        end = _after(text, "]]>", at)
        page.text(text[at + 9 : end - 3])
        return end
    if text.startswith(("<!", "<?"), at):
        end = _after(text, ">", at)
        return _after(text, "]>", at) if "[" in text[at:end] else end  # a document type with declarations inside
    tag = _TAG.match(text, at, at + _LONGEST_TAG) or _TAG_LOOSE.match(text, at)
    if tag is None:
        page.text("<")
        return at + 1
    name = tag.group(2).lower()
    if tag.group(1):
        page.end(name)
        return tag.end()
    page.start(name, tag.group(3).rstrip())
    if name in ("script", "style") and not tag.group(3).endswith("/"):
        closing = _RAW_END[name].search(text, tag.end())
        return closing.start() if closing else len(text)
    return tag.end()


def _after(text: str, mark: str, at: int) -> int:
    found = text.find(mark, at)
    return found + len(mark) if found >= 0 else len(text)
