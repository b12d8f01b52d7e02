"""epub books: chapters in reading order as readable text; books under rights management are told as protected."""

from __future__ import annotations

from typing import BinaryIO
from urllib.parse import unquote

from worker.adapters.attachments.formats.package import Package, resolve
from worker.adapters.attachments.formats.sink import FormatError, Sink
from worker.adapters.attachments.formats.web_page import read_page
from worker.adapters.attachments.formats.xml_stream import Attributes, local, parse

_FONT_SCRAMBLING = ("http://www.idpf.org/2008/embedding", "http://ns.adobe.com/pdf/enc#RC")
_MAX_CHAPTERS = 2_000


def extract(file: BinaryIO, sink: Sink, _kind: str) -> None:
    """The text of a book."""
    package = Package(file)
    _refuse_protected(package)
    chapters = _spine(package)
    sink.meta["chapterCount"] = len(chapters)
    for part in chapters[:_MAX_CHAPTERS]:
        read_page(package.read(part), sink)
        sink.write("\n\n")


def _refuse_protected(package: Package) -> None:
    def start(tag: str, attrs: Attributes) -> None:
        if local(tag) == "EncryptionMethod" and attrs.get("Algorithm") not in _FONT_SCRAMBLING:
            raise FormatError("PASSWORD_PROTECTED", "rights management")

    if "META-INF/encryption.xml" in package:
        parse(package.blocks("META-INF/encryption.xml"), start)


def _spine(package: Package) -> list[str]:
    """Members in reading order; without a usable index all pages by name."""
    roots: list[str] = []

    def container(tag: str, attrs: Attributes) -> None:
        if local(tag) == "rootfile" and attrs.get("full-path", "") in package:
            roots.append(attrs["full-path"])

    if "META-INF/container.xml" in package:
        parse(package.blocks("META-INF/container.xml"), container)
    if not roots:
        return package.names("", "html")
    items: dict[str, str] = {}
    order: list[str] = []

    def index(tag: str, attrs: Attributes) -> None:
        if local(tag) == "item":
            items[attrs.get("id", "")] = resolve(roots[0], unquote(attrs.get("href", "")))
        elif local(tag) == "itemref":
            order.append(attrs.get("idref", ""))

    parse(package.blocks(roots[0]), index)
    return [items[name] for name in order if items.get(name, "") in package] or package.names("", "html")
