"""Which entries differ between two catalogs, without parsing what is equal; says so when it cannot tell.

75 MB of catalog differ in a few entries from one commit to the next. Both texts are compared as bytes; only what lies
between the common beginning and the common end, widened to whole entries, is read as JSON.
"""

from __future__ import annotations

import re
import unicodedata
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from tasks.kb.catalog import as_object, skip_space

_PAGES = re.compile(rb'"pages"[ \t\r\n]*:[ \t\r\n]*\[')
_CHUNK = 1 << 16


@dataclass(frozen=True)
class CatalogDiff:
    """``gone``: paths whose entry went or differs · ``put``: path → its new entry · ``spans``: of all entries now."""

    gone: frozenset[str]
    put: dict[str, bytes]
    spans: array[int]


def flat_spans(spans: Sequence[tuple[int, int]]) -> array[int]:
    """Start and end of each entry, one after the other."""
    return array("Q", [place for span in spans for place in span])


def changed_entries(old: bytes, spans: array[int], new: bytes) -> CatalogDiff | None:
    """What became of the entries of ``old``, which lie at ``spans``. ``None``: the layout is not that of one list."""
    before, after = _list_start(old), _list_start(new)
    if before is None or after is None or not spans:
        return None
    if before > spans[0]:
        return None
    same = _common_start(old, before, new, after)
    tail = min(_common_end(old, new), len(old) - before - same, len(new) - after - same)
    first, last = bisect_right(spans, before + same) // 2, bisect_left(spans, len(old) - tail)
    last = min((last + 1) // 2, len(spans) // 2)
    first, last = max(min(first, last) - 1, 0), min(last + 1, len(spans) // 2)
    start, end = spans[2 * first], spans[2 * last - 1]
    if start > before + same or (end < len(old) - tail and old[end:] != new[len(new) - (len(old) - end) :]):
        return None
    shift = after - before
    piece = new[start + shift : len(new) - (len(old) - end)]
    fresh = _entries(piece)
    known = _entries(old[start:end])
    if fresh is None or known is None:
        return None
    gone = {path for path, raw, _ in known}
    put = {path: raw for path, raw, _ in fresh}
    if len(put) != len(fresh):
        return None
    unchanged = {path for path, raw, _ in known if put.get(path) == raw}
    moved = len(new) - len(old)
    middle = [place for _, raw, at in fresh for place in (start + shift + at, start + shift + at + len(raw))]
    places = array("Q", [place + shift for place in spans[: 2 * first]] if shift else spans[: 2 * first])
    places.extend(middle)
    places.extend([place + moved for place in spans[2 * last :]])
    return CatalogDiff(
        frozenset(gone - unchanged), {path: raw for path, raw in put.items() if path not in unchanged}, places
    )


def _list_start(text: bytes) -> int | None:
    """The place after the bracket that opens the top-level list ``pages``."""
    found = _PAGES.search(text)
    if found is None:
        return None
    try:
        head = msgspec.json.decode(text[: found.end()] + b"]}", type=dict[str, msgspec.Raw])
    except msgspec.DecodeError:
        return None
    return found.end() if list(head)[-1:] == ["pages"] else None


def _entries(text: bytes) -> list[tuple[str, bytes, int]] | None:
    """Path, bytes and place of each entry of a piece of the list; ``None`` when one is no plain entry."""
    try:
        raws = msgspec.json.decode(b"[" + text + b"]", type=list[msgspec.Raw])
    except msgspec.DecodeError:
        return None
    found, at = [], 0
    for raw in raws:
        data = bytes(raw)
        at = text.index(data, skip_space(text, at))
        path = as_object(raw).get("path")
        if not isinstance(path, str) or not path or not unicodedata.is_normalized("NFC", path):
            return None
        found.append((path, data, at))
        at += len(data)
    return found


def _common_start(old: bytes, i: int, new: bytes, j: int) -> int:
    """How many bytes from ``i`` and ``j`` on are equal."""
    length, most = 0, min(len(old) - i, len(new) - j)
    step = _CHUNK
    while length < most and step:
        step = min(step, most - length)
        if old[i + length : i + length + step] == new[j + length : j + length + step]:
            length += step
        else:
            step //= 2
    return length


def _common_end(old: bytes, new: bytes) -> int:
    """How many bytes at the end are equal."""
    length, most = 0, min(len(old), len(new))
    step = _CHUNK
    while length < most and step:
        step = min(step, most - length)
        if old[len(old) - length - step : len(old) - length] == new[len(new) - length - step : len(new) - length]:
            length += step
        else:
            step //= 2
    return length
