"""``catalog.json`` as it was found: where each entry lies and what it says; must not change a byte.

Entries stay raw: 100,000 of them are 75 MB, and an edit (``tasks.kb.catalog_edit``) must know where each one stands.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeGuard, overload

import msgspec

from tasks.contract.pages import PageFacts
from tasks.contract.shape import JsonObject, Note, Scalar

MAX_LIST_ITEMS = 10

BOM = b"\xef\xbb\xbf"
_LONGEST_WHOLE = 1_000
_UTF8 = codecs.getincrementaldecoder("utf-8")
_PIECE = 1 << 16
_SPACES = b" \t\r\n"
_SPACE = re.compile(rb"[ \t\r\n]*")
_KEY = re.compile(rb'"((?:[^"\\]|\\.)*)"[ \t\r\n]*:[ \t\r\n]*', re.DOTALL)
_BETWEEN = re.compile(rb"[ \t\r\n]*,?[ \t\r\n]*")


class CatalogError(ValueError):
    """The bytes cannot be read as a catalog. ``en`` and ``zh`` say what is wrong, without the file's name."""

    def __init__(self, en: str, zh: str) -> None:
        super().__init__(en)
        self.en = en
        self.zh = zh


class _PathOnly(msgspec.Struct):
    path: Any = None


@dataclass(frozen=True)
class Member:
    """One member of the top-level object: its value lies at ``start:end`` of the catalog's bytes."""

    start: int
    end: int


@dataclass(frozen=True)
class Pieces(Sequence[bytes]):
    """Pieces of a text, cut out when asked for."""

    data: bytes
    spans: Sequence[tuple[int, int]]

    def __len__(self) -> int:
        return len(self.spans)

    @overload
    def __getitem__(self, number: int) -> bytes: ...
    @overload
    def __getitem__(self, number: slice) -> list[bytes]: ...
    def __getitem__(self, number: int | slice) -> bytes | list[bytes]:
        if isinstance(number, slice):
            return [self.data[start:end] for start, end in self.spans[number]]
        start, end = self.spans[number]
        return self.data[start:end]


@dataclass(frozen=True)
class Catalog:
    """One parsed catalog. ``spans[i]``: start and end of entry ``i``, ``paths[i]`` its path or ``""``."""

    data: bytes
    members: Mapping[str, Member]
    spans: Sequence[tuple[int, int]]
    paths: Sequence[str]
    bom: bool = False

    @property
    def raw(self) -> Pieces:
        """``raw[i]``: the bytes of entry ``i`` as written."""
        return Pieces(self.data, self.spans)

    @cached_property
    def positions(self) -> dict[str, int]:
        """Path → number of its entry; of two entries with one path the first counts."""
        found = dict(zip(self.paths, range(len(self.paths)), strict=True))
        if len(found) == len(self.paths) and "" not in found:
            return found
        found = {}
        for number, path in enumerate(self.paths):
            if path:
                found.setdefault(path, number)
        return found

    @cached_property
    def is_sorted(self) -> bool:
        """Whether the entries stand in the order of their paths (each has one)."""
        return all(self.paths[:1]) and all(a <= b for a, b in pairwise(self.paths))

    def entry(self, path: str) -> JsonObject | None:
        """The whole entry of ``path`` as it stands, ``None`` without one."""
        number = self.positions.get(path)
        return None if number is None else as_object(self.raw[number])

    def facts(self, path: str) -> PageFacts | None:
        """What the catalog says about ``path``, odd values left out; ``None`` without an entry."""
        entry = self.entry(path)
        return None if entry is None else entry_facts(path, entry)

    def notes(self) -> list[Note]:
        """What was odd and was read in a stated way."""
        notes = []
        if self.bom:
            notes.append(_note("CATALOG_BOM", "catalog.json 以 BOM 开头，已忽略"))
        if "pages" not in self.members:
            notes.append(_note("CATALOG_NO_PAGES", "catalog.json 没有 pages 列表"))
        nameless = sum(1 for path in self.paths if not path)
        if nameless:
            notes.append(
                _note("CATALOG_ENTRY_WITHOUT_PATH", f"catalog.json 有 {nameless} 个条目没有可用的 path，已跳过")
            )
        double = len(self.paths) - nameless - len(self.positions)
        if double:
            notes.append(_note("CATALOG_DUPLICATE_PATH", f"catalog.json 有 {double} 个重复的 path，以第一个条目为准"))
        return notes


# ---------------------------------------------------------------- reading


def parse(data: bytes) -> Catalog:
    """Read a catalog. Raises :class:`CatalogError`: not UTF-8, not JSON, not an object, ``pages`` no list."""
    bom = data.startswith(BOM)
    text = data[len(BOM) :] if bom else data
    try:
        _check_utf8(text)
        values = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError) as error:
        raise _unreadable(text, error) from error
    members = _members(text, values)
    raw: list[msgspec.Raw] = []
    if "pages" in values:
        try:
            raw = msgspec.json.decode(values["pages"], type=list[msgspec.Raw])
        except msgspec.DecodeError as error:
            raise CatalogError("pages is not a list", "pages 不是列表") from error
    spans = _spans(text, members["pages"].start + 1, raw) if raw else []
    return Catalog(data=text, members=members, spans=spans, paths=_paths(values.get("pages"), raw), bom=bom)


def entry_facts(path: str, entry: Mapping[str, Any]) -> PageFacts:
    """An entry as :class:`PageFacts`: lists cut to 10, values of another kind left out, a lone value as a list."""

    def scalars(name: str) -> tuple[Scalar, ...]:
        value = entry.get(name)
        items = value if isinstance(value, list) else [value]
        return tuple(item for item in items if _is_scalar(item) and item != "")[:MAX_LIST_ITEMS]

    return PageFacts(
        path=path,
        title=_text(entry.get("title")),
        type=_text(entry.get("type")) or _text(entry.get("kbType")),
        kb_type=_text(entry.get("kbType")) or _text(entry.get("type")),
        keywords=tuple(str(item) for item in scalars("keywords")),
        project_ids=scalars("projectIds"),
        source_ids=scalars("sourceIds"),
        updated_at=_text(entry.get("updatedAt")),
        related_concepts=scalars("relatedConcepts"),
        related_resources=scalars("relatedResources"),
        related_code_pages=scalars("relatedCodePages"),
        related_pages=scalars("relatedPages"),
    )


def _members(text: bytes, values: Mapping[str, msgspec.Raw]) -> dict[str, Member]:
    """Where each top-level value lies; the walk knows the length of each value, so nothing is scanned twice."""
    found: dict[str, Member] = {}
    at = skip_space(text, text.index(b"{") + 1)
    for name, raw in values.items():
        key = _KEY.match(text, at)
        if key is None or json.loads(b'"' + key[1] + b'"') != name:
            raise CatalogError("a top-level key occurs twice", "顶层字段重复")
        end = key.end() + len(memoryview(raw))
        found[name] = Member(key.end(), end)
        at = _skip(_BETWEEN, text, end)
    if text[at : at + 1] != b"}":
        raise CatalogError("a top-level key occurs twice", "顶层字段重复")
    return found


def _spans(text: bytes, at: int, raw: Sequence[msgspec.Raw]) -> list[tuple[int, int]]:
    """Where each entry lies: exact pieces in order, so only commas and white space lie between."""
    spans, at = [], skip_space(text, at)
    usual = b","  # what lies between most entries
    for piece in raw:
        end = at + len(memoryview(piece))
        spans.append((at, end))
        at = end + len(usual)
        if not text.startswith(usual, end) or text[at] in _SPACES:
            at = _skip(_BETWEEN, text, end)
            usual = text[end:at] or usual
    return spans


def _paths(pages: msgspec.Raw | None, raw: Sequence[msgspec.Raw]) -> list[str]:
    if pages is None:
        return []
    try:
        return [_path(item.path) for item in msgspec.json.decode(pages, type=list[_PathOnly])]
    except msgspec.DecodeError:  # one entry is no object: look at each alone
        return [_path(as_object(item).get("path")) for item in raw]


def as_object(raw: msgspec.Raw | bytes) -> JsonObject:
    """An entry as an object; one of another kind as ``{}``."""
    try:
        value = msgspec.json.decode(raw)
    except msgspec.ValidationError:  # a number no double can hold
        value = json.loads(bytes(raw), parse_int=_whole)
    return value if isinstance(value, dict) else {}


def _whole(digits: str) -> int | float:
    """Python refuses to read whole numbers of thousands of digits."""
    return int(digits) if len(digits) <= _LONGEST_WHOLE else float(digits)


def _check_utf8(text: bytes) -> None:
    """Raises ``UnicodeDecodeError``. Piece by piece: 75 MB at once cost three times as much."""
    decoder, view = _UTF8(), memoryview(text)
    try:
        for at in range(0, len(text), _PIECE):
            decoder.decode(view[at : at + _PIECE])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        text.decode()  # tells the place in the whole text
        raise


def _unreadable(text: bytes, error: Exception) -> CatalogError:
    if not text.strip():
        return CatalogError("the file is empty", "文件是空的")
    if isinstance(error, UnicodeDecodeError):
        return CatalogError(f"not UTF-8 (byte {error.start})", f"不是 UTF-8 编码（第 {error.start + 1} 字节）")
    if text.lstrip()[:1] != b"{" and _is_json(text):
        return CatalogError("not a JSON object", "不是 JSON 对象")
    place = re.search(r"\(byte (\d+)\)", str(error))
    cause = f"第 {int(place[1]) + 1} 字节处有语法错误" if place else "结构有误"
    return CatalogError(f"not valid JSON: {error}", f"不是合法的 JSON（{cause}）")


def _is_json(text: bytes) -> bool:
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def _is_scalar(value: object) -> TypeGuard[Scalar]:
    return isinstance(value, int | str) and not isinstance(value, bool)


def _path(value: object) -> str:
    return value if isinstance(value, str) else ""


def _text(value: object) -> str:
    return str(value) if _is_scalar(value) else ""


def _note(code: str, message: str) -> Note:
    return Note(code=code, path="catalog.json", message=message)


def skip_space(text: bytes, at: int) -> int:
    """The place of the first byte from ``at`` on that is no JSON white space."""
    return _skip(_SPACE, text, at)


def _skip(pattern: re.Pattern[bytes], text: bytes, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found else at
