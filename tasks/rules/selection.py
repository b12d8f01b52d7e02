"""Which pages a selection really names (CONTRACT §4.2); must not read a page, nor add one that was not named."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import unquote

from tasks.contract.selection import MissingPage, PageSelection, ReadLevel, SelectedPage
from tasks.contract.shape import Note
from tasks.kb.paths import is_hidden, problem_with_page_path

MAX_SHOWN_PATH = 300
_MAX_RAW_PATH = 2_000  # far beyond any page path; keeps the patterns below cheap

_WIKI_LINK = re.compile(r"!?\[\[([^\[\]|]+)(?:\|[^\[\]]*)?\]\]\Z")
_MARKDOWN_LINK = re.compile(r"!?\[[^\[\]]*\]\(\s*+<?([^()<>]++)>?\s*+\)\Z")
_QUOTES = "\"'`“”‘’「」『』《》<>"
_INVISIBLE = re.compile("[\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff\u00ad]")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_SCHEME = re.compile(
    r"[A-Za-z][A-Za-z0-9+.-]+:/|[A-Za-z]:[\\/]|\\\\|//|~[/\\]|(?:file|data|javascript):", re.IGNORECASE
)
_ANCHOR = re.compile(r"[#?][^/]*\Z")
_DECODINGS = 3


@dataclass(frozen=True)
class ChosenPages:
    """What is left of a selection: pages to read under their exact paths, and why each other path is not read.

    ``read_level`` is the selection's own, ``normalized`` at best when a path was changed or left out.
    """

    pages: tuple[SelectedPage, ...]
    missing: tuple[MissingPage, ...]
    notes: tuple[Note, ...]
    read_level: ReadLevel


def choose_pages(selection: PageSelection, *, visible: Callable[[str], bool], limit: int) -> ChosenPages:
    """At most ``limit`` distinct visible pages, in the model's order.

    ``visible`` says whether an exact path is a visible page. The limit counts what is left after unknown, hidden,
    unsafe and duplicate paths are dropped.
    """
    pages: list[SelectedPage] = []
    missing: list[MissingPage] = []
    notes: list[Note] = []
    taken: set[str] = set()
    for at, choice in enumerate(selection.selected_pages):
        path, reason = resolve_path(choice.path, visible)
        if path in taken:
            reason = "duplicate"
        elif path and len(pages) >= limit:
            reason = "over_limit"
        if reason:
            missing.append(MissingPage(path=_shown(choice.path), reason=reason))
            continue
        if path != choice.path:
            notes.append(_note(path, at, choice.path))
        taken.add(path)
        pages.append(choice.model_copy(update={"path": path}))
    changed = ReadLevel.NORMALIZED if missing or notes else ReadLevel.EXACT
    level = max(selection.read_level, changed, key=lambda level: level.rank)
    return ChosenPages(tuple(pages), tuple(missing), tuple(notes), level)


def resolve_path(raw: str, visible: Callable[[str], bool]) -> tuple[str, str]:
    """The one visible page that ``raw`` names and ``""``, or ``""`` and why not: ``unknown | hidden | unsafe``."""
    if len(raw) > _MAX_RAW_PATH:
        return "", "unsafe"
    exact = unicodedata.normalize("NFC", raw)
    if _is_page(exact, visible):
        return exact, ""
    bare = _bare(exact)
    if not bare:
        return "", "unknown"
    if _is_unsafe(bare):
        return "", "unsafe"
    spellings = _spellings(bare)
    if found := next((path for path in spellings if _is_page(path, visible)), None):
        return found, ""
    if any(is_hidden(path) for path in spellings):
        return "", "hidden"
    leads_out = bare.startswith(("/", "\\")) or problem_with_page_path(spellings[0]) is not None
    return "", "unsafe" if leads_out else "unknown"


def _is_page(path: str, visible: Callable[[str], bool]) -> bool:
    return problem_with_page_path(path) is None and not is_hidden(path) and visible(path)


def _bare(text: str) -> str:
    """``text`` without what models put around a path: white space, quotes, link syntax, invisible characters."""
    text = _INVISIBLE.sub("", text)
    for _ in range(_DECODINGS):
        before = text
        text = text.strip().strip(_QUOTES).strip()
        for link in (_WIKI_LINK, _MARKDOWN_LINK):
            if match := link.match(text):
                text = match.group(1)
        if text == before:
            break
    return text


def _is_unsafe(bare: str) -> bool:
    """Whether ``bare``, however often it is URL-encoded, points out of the repository or is no path at all."""
    return any(
        _CONTROL.search(form) or _SCHEME.match(form) or ".." in re.split(r"[/\\]", form)
        for form in _decoded_forms(bare)
    )


def _decoded_forms(text: str) -> list[str]:
    forms = [text]
    for _ in range(_DECODINGS):
        decoded = unquote(forms[-1])
        if decoded == forms[-1]:
            break
        forms.append(decoded)
    return forms


def _spellings(bare: str) -> list[str]:
    """The paths that ``bare`` may mean, the most literal first."""
    found: list[str] = []
    for form in _decoded_forms(bare)[:2]:
        path = unicodedata.normalize("NFC", form).replace("\\", "/")
        path = "/".join(part for part in path.split("/") if part not in ("", "."))
        for spelling in (path, _ANCHOR.sub("", path)):
            found += [spelling] if spelling.endswith(".md") else [spelling, f"{spelling}.md"]
    return list(dict.fromkeys(found))


def _shown(raw: str) -> str:
    """``raw`` as ``missingPages`` repeats it: on one line, cut."""
    return _CONTROL.sub("\ufffd", raw)[:MAX_SHOWN_PATH]


def _note(path: str, at: int, raw: str) -> Note:
    return Note(
        code="PATH_NORMALIZED",
        path=path,
        field=f"selectedPages[{at}].path",
        message=f"“{_shown(raw)}” 按 “{path}” 读取",
    )
