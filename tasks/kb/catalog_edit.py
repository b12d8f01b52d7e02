"""Putting entries into ``catalog.json``, bytes in and bytes out; must not re-serialise what it keeps.

Every entry of another writer keeps its bytes (CONTRACT §4.6): an edit splices new text into the old.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tasks.contract import strict_json
from tasks.contract.shape import JsonObject
from tasks.kb.catalog import BOM, Catalog, Member, as_object, parse, skip_space
from tasks.kb.catalog_style import Style, found_style
from tasks.kb.page import Page, page_facts

_SAMPLE = 50  # entries looked at for the layout
_LISTS = (
    "sourceIds",
    "keywords",
    "projectIds",
    "relatedConcepts",
    "relatedResources",
    "relatedCodePages",
    "relatedPages",
)
_KEPT = ("contentHash", "sourceStatus", "id")


def create(entries: Iterable[JsonObject], updated_at: str) -> bytes:
    """A new catalog, sorted by path: version 1, two spaces, unescaped UTF-8, ``\\n``."""
    pages = sorted(entries, key=lambda entry: str(entry.get("path", "")))
    return strict_json.dumps({"version": 1, "updatedAt": updated_at, "pages": pages})


def merged(old: JsonObject, new: JsonObject) -> JsonObject:
    """``new`` over ``old``: lists united (old order first, no doubles), other values ours, unknown fields kept."""
    result = dict(old)
    for name, value in new.items():
        kept = old.get(name)
        if isinstance(value, list) and isinstance(kept, list):
            value = [*kept, *(item for item in value if item not in kept)]
        result[name] = value
    return result


def final_entries(catalog: Catalog, entries: Sequence[JsonObject]) -> dict[str, JsonObject]:
    """Path → the entry that ``catalog`` will hold for it after :func:`upsert`, in the order of ``entries``."""
    final: dict[str, JsonObject] = {}
    for entry in entries:
        path = str(entry["path"])
        old = final.get(path) or catalog.entry(path)
        final[path] = merged(old, entry) if old else dict(entry)
    return final


def upsert(catalog: Catalog, entries: Sequence[JsonObject], updated_at: str) -> bytes:
    """The file with ``entries`` put in and the top-level ``updatedAt`` replaced; all other bytes as they were.

    A known path is merged into its entry (:func:`merged`). A new one goes to its place when the catalog is sorted by
    path, else to the end.
    """
    return as_file(upserted(catalog, entries, updated_at))


def as_file(catalog: Catalog) -> bytes:
    """The bytes of ``catalog.json``."""
    return (BOM if catalog.bom else b"") + catalog.data


def upserted(catalog: Catalog, entries: Sequence[JsonObject], updated_at: str) -> Catalog:
    """What :func:`upsert` makes, parsed: where everything lies is known and not looked for once more."""
    final = final_entries(catalog, entries)
    if not catalog.members:
        return replace(parse(create(final.values(), updated_at)), bom=catalog.bom)
    style = _style(catalog)
    known = {path: entry for path, entry in final.items() if path in catalog.positions}
    fresh = {path: entry for path, entry in final.items() if path not in catalog.positions}
    date = _date_splice(catalog, style, updated_at)
    if not catalog.spans or "updatedAt" not in catalog.members:
        splices = [
            date,
            *_replacing_splices(catalog, _replaced(catalog, style, known)),
            *_filling(catalog, style, fresh),
        ]
        return replace(parse(_spliced(catalog.data, splices)), bom=catalog.bom)
    replaced, added = _replaced(catalog, style, known), _added(catalog, style, fresh)
    splices = [date, *_replacing_splices(catalog, replaced), *_adding_splices(catalog, added, style.separator)]
    grown = date.growth if date.start < catalog.members["pages"].start else 0
    return Catalog(
        data=_spliced(catalog.data, splices),
        members=_moved(catalog.members, date, sum(splice.growth for splice in splices[1:])),
        spans=_spans_after(catalog.spans, replaced, added, len(style.separator), grown),
        paths=_paths_after(catalog.paths, added),
        bom=catalog.bom,
    )


@dataclass(frozen=True, order=True)
class _Splice:
    """``data[start:end]`` becomes ``text``."""

    start: int
    end: int
    text: bytes

    @property
    def growth(self) -> int:
        return len(self.text) - (self.end - self.start)


def _spliced(data: bytes, splices: Sequence[_Splice]) -> bytes:
    view = memoryview(data)
    parts: list[bytes | memoryview] = []
    at = 0
    for splice in sorted(splices):
        parts += [view[at : splice.start], splice.text]
        at = splice.end
    return b"".join([*parts, view[at:]])


def without(catalog: Catalog, numbers: Iterable[int]) -> bytes:
    """The catalog without the entries of these numbers; all other bytes as they were."""
    spans, doomed = catalog.spans, set(numbers)
    kept = [number for number in range(len(spans)) if number not in doomed]
    splices = []
    for number in sorted(doomed):
        start, end = spans[number]
        if kept and number < kept[0]:
            splices.append(_Splice(start, spans[number + 1][0], b""))
        elif kept:
            splices.append(_Splice(spans[number - 1][1], end, b""))
        elif number + 1 < len(spans):
            splices.append(_Splice(start, spans[number + 1][0], b""))
        else:
            splices.append(_Splice(start, end, b""))
    return (BOM if catalog.bom else b"") + _spliced(catalog.data, splices)


def _date_splice(catalog: Catalog, style: Style, updated_at: str) -> _Splice:
    value = style.value(updated_at)
    if member := catalog.members.get("updatedAt"):
        return _Splice(member.start, member.end, value)
    start = skip_space(catalog.data, catalog.data.index(b"{") + 1)
    return _Splice(start, start, style.member("updatedAt", value) + b"," + style.top_lead)


def _replaced(catalog: Catalog, style: Style, known: Mapping[str, JsonObject]) -> dict[int, bytes]:
    """Number of each entry that changes → its new text."""
    numbers = {catalog.positions[path]: entry for path, entry in known.items()}
    return {number: style.entry(entry) for number, entry in numbers.items() if entry != as_object(catalog.raw[number])}


def _replacing_splices(catalog: Catalog, replaced: Mapping[int, bytes]) -> list[_Splice]:
    return [_Splice(*catalog.spans[number], text) for number, text in replaced.items()]


def _added(catalog: Catalog, style: Style, fresh: Mapping[str, JsonObject]) -> dict[int, dict[str, bytes]]:
    """Number of the entry before which they go → paths and texts of new entries, in order."""
    places: dict[int, dict[str, bytes]] = {}
    for path in sorted(fresh) if catalog.is_sorted else fresh:
        places.setdefault(_place(catalog, path), {})[path] = style.entry(fresh[path])
    return places


def _adding_splices(catalog: Catalog, added: Mapping[int, Mapping[str, bytes]], separator: bytes) -> Iterator[_Splice]:
    for number, texts in added.items():
        block = separator.join(texts.values())
        if number == len(catalog.spans):
            last = catalog.spans[-1][1]
            yield _Splice(last, last, separator + block)
        else:
            start = catalog.spans[number][0]
            yield _Splice(start, start, block + separator)


def _filling(catalog: Catalog, style: Style, fresh: Mapping[str, JsonObject]) -> Iterator[_Splice]:
    """The same for a catalog whose list may be empty or missing."""
    if catalog.spans:
        yield from _adding_splices(catalog, _added(catalog, style, fresh), style.separator)
    elif fresh:
        texts = style.entries([fresh[path] for path in sorted(fresh)])
        if pages := catalog.members.get("pages"):
            yield _Splice(pages.start, pages.end, texts)
        else:
            end = max(member.end for member in catalog.members.values())
            yield _Splice(end, end, b"," + style.top_lead + style.member("pages", texts))


# ---------------------------------------------------------------- where everything lies afterwards


def _spans_after(
    spans: Sequence[tuple[int, int]],
    replaced: Mapping[int, bytes],
    added: Mapping[int, Mapping[str, bytes]],
    between: int,
    shift: int,
) -> list[tuple[int, int]]:
    """``between``: length of a separator · ``shift``: how much the text before the list has grown."""
    found: list[tuple[int, int]] = []
    done = 0
    for number in sorted({*replaced, *added}):
        found += [(start + shift, end + shift) for start, end in spans[done:number]]
        done = number
        at = spans[number][0] + shift if number < len(spans) else spans[-1][1] + shift + between
        for text in added.get(number, {}).values():
            found.append((at, at + len(text)))
            at += len(text) + between
            shift += len(text) + between
        if number in replaced:
            start, end = spans[number]
            found.append((start + shift, start + shift + len(replaced[number])))
            shift += len(replaced[number]) - (end - start)
            done = number + 1
    return found + [(start + shift, end + shift) for start, end in spans[done:]]


def _paths_after(paths: Sequence[str], added: Mapping[int, Mapping[str, bytes]]) -> list[str]:
    found = list(paths)
    for number in sorted(added, reverse=True):
        found[number:number] = added[number]
    return found


def _moved(members: Mapping[str, Member], date: _Splice, grown: int) -> dict[str, Member]:
    """``grown``: how much longer the list of pages is."""
    pages = members["pages"]

    def after(place: int) -> int:
        return place + (date.growth if place >= date.end else 0) + (grown if place >= pages.end else 0)

    return {name: Member(after(member.start), after(member.end)) for name, member in members.items()}


def _place(catalog: Catalog, path: str) -> int:
    return bisect_left(catalog.paths, path) if catalog.is_sorted else len(catalog.spans)


def _style(catalog: Catalog) -> Style:
    pages, spans = catalog.members.get("pages"), catalog.spans
    gap = catalog.data[spans[0][1] : spans[1][0]] if len(spans) > 1 else b""
    return found_style(catalog.data, (pages.start, pages.end) if pages else None, catalog.raw[:_SAMPLE], gap)


def entry_of_page(path: str, page: Page) -> JsonObject:
    """The entry that the page file itself calls for, when no catalog has one: lists whole, in the contract's order."""
    entry = page_facts(path, page, None).document()
    own = {name: value for name in _LISTS if isinstance(value := page.metadata.get(name), list)}
    return {**entry, **own, **{name: page.metadata[name] for name in _KEPT if name in page.metadata}}
