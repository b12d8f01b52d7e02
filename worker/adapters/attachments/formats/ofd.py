"""OFD (GB/T 33190): the fixed-layout format of Chinese invoices and official papers; pages in order, text only."""

from __future__ import annotations

from typing import BinaryIO

from worker.adapters.attachments.formats.package import Package, resolve
from worker.adapters.attachments.formats.sink import FormatError, Sink
from worker.adapters.attachments.formats.xml_stream import Attributes, local, parse


def extract(file: BinaryIO, sink: Sink, _kind: str) -> None:
    """The text of all pages, one line a text object."""
    package = Package(file)
    roots = [resolve("OFD.xml", root.strip()) for root in _texts(package, "OFD.xml", "DocRoot")]
    pages = [page for root in roots if root in package for page in _pages(package, root)]
    if not pages:
        raise FormatError("CORRUPT", "no pages")
    sink.meta["pageCount"] = len(pages)
    for page in pages:
        for text in _texts(package, page, "TextCode"):
            sink.write(text + "\n")
        sink.write("\n")


def _pages(package: Package, root: str) -> list[str]:
    found: list[str] = []

    def start(tag: str, attrs: Attributes) -> None:
        if local(tag) == "Page" and (page := resolve(root, attrs.get("BaseLoc", ""))) in package:
            found.append(page)

    parse(package.blocks(root), start)
    return found


def _texts(package: Package, part: str, wanted: str) -> list[str]:
    """What stands inside the elements of this name."""
    found: list[str] = []
    inside = False

    def start(tag: str, _attrs: Attributes) -> None:
        nonlocal inside
        if local(tag) == wanted:
            inside = True
            found.append("")

    def end(tag: str) -> None:
        nonlocal inside
        inside = inside and local(tag) != wanted

    def data(text: str) -> None:
        if inside:
            found[-1] += text

    parse(package.blocks(part), start, end, data)
    return found
