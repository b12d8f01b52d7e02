"""pptx: slides in the order of the presentation, tables and grouped shapes included, then each slide's notes."""

from __future__ import annotations

from typing import BinaryIO

from worker.adapters.attachments.formats.package import Package
from worker.adapters.attachments.formats.sink import Sink
from worker.adapters.attachments.formats.word import read_part
from worker.adapters.attachments.formats.xml_stream import Attributes, local, main_part, parse, relations

_EXTRAS = ("diagramData", "chart", "notesSlide", "comments", "comment")


def extract(file: BinaryIO, sink: Sink, _kind: str) -> None:
    """The text of a presentation."""
    package = Package(file)
    slides = _ordered(package)
    sink.meta["slideCount"] = len(slides)
    for number, slide in enumerate(slides, start=1):
        part = Sink(sink.limit)
        try:
            _read_slide(package, slide, part)
        finally:
            if part.visible:  # a slide of pictures only leaves no trace: its number alone is no text
                sink.write(f"\n[{number}] {part.text()}")


def _read_slide(package: Package, slide: str, sink: Sink) -> None:
    read_part(package, slide, sink)
    related = list(relations(package, slide).values())
    for wanted in _EXTRAS:
        for kind, part in related:
            if kind == wanted:
                read_part(package, part, sink)


def _ordered(package: Package) -> list[str]:
    """Slides as ``presentation.xml`` orders them; without it (damaged, odd producers) by their number."""
    presentation = main_part(package, "ppt/")
    by_id = relations(package, presentation)
    order: list[str] = []

    def start(tag: str, attrs: Attributes) -> None:
        if local(tag) == "sldId":
            for name, value in attrs.items():
                if local(name) == "id" and ":" in name and value in by_id:
                    order.append(by_id[value][1])

    parse(package.blocks(presentation), start)
    return order or [name for name in package.names("ppt/slides/") if name.count("/") == 2]
