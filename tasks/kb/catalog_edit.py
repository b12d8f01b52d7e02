"""Putting entries into ``catalog.json``, bytes in and bytes out; must not re-serialise what it keeps.

Every entry of another writer keeps its bytes (CONTRACT §4.6): an edit splices new text into the old.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tasks.contract import strict_json
from tasks.contract.shape import JsonObject
from tasks.kb.catalog import BOM, Catalog, as_object, skip_space
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
    """The catalog with ``entries`` put in and the top-level ``updatedAt`` replaced; all other bytes as they were.

    A known path is merged into its entry (:func:`merged`). A new one goes to its place when the catalog is sorted by
    path, else to the end.
    """
    final = final_entries(catalog, entries)
    if not catalog.members:
        return (BOM if catalog.bom else b"") + create(final.values(), updated_at)
    style = _style(catalog)
    known = {path: entry for path, entry in final.items() if path in catalog.positions}
    fresh = {path: entry for path, entry in final.items() if path not in catalog.positions}
    splices = [
        *_date_splices(catalog, style, updated_at),
        *_replacing_splices(catalog, style, known),
        *_adding_splices(catalog, style, fresh),
    ]
    return (BOM if catalog.bom else b"") + _spliced(catalog.data, splices)


@dataclass(frozen=True, order=True)
class _Splice:
    """``data[start:end]`` becomes ``text``."""

    start: int
    end: int
    text: bytes


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


def _date_splices(catalog: Catalog, style: Style, updated_at: str) -> list[_Splice]:
    value = style.value(updated_at)
    if member := catalog.members.get("updatedAt"):
        return [_Splice(member.start, member.end, value)]
    start = skip_space(catalog.data, catalog.data.index(b"{") + 1)
    return [_Splice(start, start, style.member("updatedAt", value) + b"," + style.top_lead)]


def _replacing_splices(catalog: Catalog, style: Style, known: Mapping[str, JsonObject]) -> list[_Splice]:
    spans = catalog.spans
    splices = []
    for path, entry in known.items():
        number = catalog.positions[path]
        if entry != as_object(catalog.raw[number]):
            splices.append(_Splice(*spans[number], style.entry(entry)))
    return splices


def _adding_splices(catalog: Catalog, style: Style, fresh: Mapping[str, JsonObject]) -> list[_Splice]:
    if not fresh:
        return []
    added = sorted(fresh) if catalog.is_sorted else list(fresh)
    if "pages" not in catalog.members:
        end = max(member.end for member in catalog.members.values())
        block = b"," + style.top_lead + style.member("pages", style.entries([fresh[path] for path in added]))
        return [_Splice(end, end, block)]
    if not catalog.raw:
        pages = catalog.members["pages"]
        return [_Splice(pages.start, pages.end, style.entries([fresh[path] for path in added]))]
    spans = catalog.spans
    last = spans[-1][1]
    places: dict[int, list[bytes]] = {}
    for path in added:
        places.setdefault(_place(catalog, path), []).append(style.entry(fresh[path]))
    splices = []
    for number, texts in places.items():
        if number == len(spans):
            splices.append(_Splice(last, last, style.separator + style.separator.join(texts)))
        else:
            start = spans[number][0]
            splices.append(_Splice(start, start, style.separator.join(texts) + style.separator))
    return splices


def _place(catalog: Catalog, path: str) -> int:
    return bisect_left(catalog.paths, path) if catalog.is_sorted else len(catalog.raw)


def _style(catalog: Catalog) -> Style:
    pages, spans = catalog.members.get("pages"), catalog.spans
    gap = catalog.data[spans[0][1] : spans[1][0]] if len(spans) > 1 else b""
    sample = [bytes(item) for item in catalog.raw[:_SAMPLE]]
    return found_style(catalog.data, (pages.start, pages.end) if pages else None, sample, gap)


def entry_of_page(path: str, page: Page) -> JsonObject:
    """The entry that the page file itself calls for, when no catalog has one: lists whole, in the contract's order."""
    entry = page_facts(path, page, None).document()
    own = {name: value for name in _LISTS if isinstance(value := page.metadata.get(name), list)}
    return {**entry, **own, **{name: page.metadata[name] for name in _KEPT if name in page.metadata}}
