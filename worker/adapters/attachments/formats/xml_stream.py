"""XML read block by block with expat; must never resolve an entity, and refuses files that declare some."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from xml.parsers import expat

from worker.adapters.attachments.formats.package import Package, resolve
from worker.adapters.attachments.formats.sink import FormatError

Attributes = dict[str, str]
StartHandler = Callable[[str, Attributes], None]
EndHandler = Callable[[str], None]
DataHandler = Callable[[str], None]


def local(tag: str) -> str:
    """``w:t`` → ``t``. Prefixes differ between producers and strict files, local names do not."""
    return tag.rpartition(":")[2]


class XmlStream:
    """A push parser: :meth:`feed` bytes, handlers are called. Raises ``CORRUPT`` and ``FORBIDDEN_XML``."""

    def __init__(self, start: StartHandler, end: EndHandler | None = None, data: DataHandler | None = None) -> None:
        self._parser = expat.ParserCreate()
        self._parser.buffer_text = True
        self._parser.StartElementHandler = start
        self._parser.EndElementHandler = end
        self._parser.CharacterDataHandler = data
        self._parser.StartDoctypeDeclHandler = _doctype
        self._parser.EntityDeclHandler = _forbidden

    def feed(self, block: bytes, *, final: bool = False) -> None:
        """The next bytes of the document."""
        try:
            self._parser.Parse(block, final)
        except (expat.ExpatError, ValueError, LookupError) as error:
            raise FormatError("CORRUPT", f"XML: {type(error).__name__}") from error


def parse(
    blocks: Iterable[bytes], start: StartHandler, end: EndHandler | None = None, data: DataHandler | None = None
) -> None:
    """A whole document."""
    stream = XmlStream(start, end, data)
    for block in blocks:
        stream.feed(block)
    stream.feed(b"", final=True)


def relations(package: Package, part: str) -> dict[str, tuple[str, str]]:
    """``id → (last word of the type, member)`` of a part, external and dead targets left out."""
    folder, _, name = part.rpartition("/")
    rels = f"{folder}/_rels/{name}.rels".lstrip("/")
    found: dict[str, tuple[str, str]] = {}

    def start(tag: str, attrs: Attributes) -> None:
        if local(tag) == "Relationship" and attrs.get("TargetMode") != "External":
            target = resolve(part, attrs.get("Target", ""))
            if target in package:
                found[attrs.get("Id", "")] = (attrs.get("Type", "").rpartition("/")[2], target)

    if rels in package:
        parse(package.blocks(rels), start)
    return found


def main_part(package: Package, prefix: str) -> str:
    """The main part of an OOXML package: by its root relation, else by the usual name. Raises ``CORRUPT``."""
    for kind, target in relations(package, "").values():
        if kind == "officeDocument":
            return target
    candidates = [name for name in package.names(prefix) if name.count("/") == 1]
    for name in candidates:
        if name.startswith((f"{prefix}document", f"{prefix}presentation", f"{prefix}workbook")):
            return name
    raise FormatError("CORRUPT", "the main part is missing")


def _doctype(_name: str, _system: str | None, _public: str | None, has_internal_subset: bool) -> None:  # noqa: FBT001
    if has_internal_subset:
        _forbidden()


def _forbidden(*_args: object) -> None:
    raise FormatError("FORBIDDEN_XML", "declares entities")
