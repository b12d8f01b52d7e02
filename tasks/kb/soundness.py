"""Whether catalog, index and pages of a repository agree, and what would make them; must not touch a repository.

What is mended: entries without a file, doubles and pages without an entry, in ``catalog.json`` and ``index.md``. Pages
are people's: what is wrong inside one is named, never changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from tasks.kb import catalog_edit, index_page
from tasks.kb.catalog import Catalog, CatalogError, entry_facts, parse
from tasks.kb.page import Page
from tasks.kb.paths import is_hidden, is_page, problem_with_page_path

Kind = Literal["error", "warning"]


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong. ``mends``: whether :func:`mended` puts it right."""

    code: str
    path: str
    message: str
    kind: Kind = "error"
    mends: bool = False


@dataclass(frozen=True)
class Repository:
    """What is looked at: every ``.md`` file by path (``None``: not read), and both service files as found."""

    pages: Mapping[str, Page]
    catalog: bytes | None
    index: str | None
    unsafe: tuple[str, ...] = ()
    """``.md`` files of the tree whose path cannot be used."""


@dataclass(frozen=True)
class Mended:
    """New bytes of the service files that change, by path."""

    files: Mapping[str, bytes] = field(default_factory=dict)
    added: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()


def check(repository: Repository) -> list[Finding]:
    """Everything that is wrong, catalog first."""
    findings = [
        Finding("UNSAFE_PATH", p, f"{problem_with_page_path(p)}; the page is not shown") for p in repository.unsafe
    ]
    for path, page in repository.pages.items():
        findings += [Finding(note.code, path, f"frontmatter: {page.detail}") for note in page.notes(path)]
    try:
        catalog = _catalog(repository)
    except CatalogError as error:
        return [Finding("CATALOG_INVALID", "catalog.json", f"{error.en}; restore it from the history first"), *findings]
    if repository.catalog is None:
        missing = Finding("CATALOG_MISSING", "catalog.json", "not there; all pages are shown without it", mends=True)
        return [missing, *findings, *_index_findings(repository, catalog)]
    return [*_catalog_findings(repository, catalog), *findings, *_index_findings(repository, catalog)]


def mended(repository: Repository, now: str) -> Mended:
    """The service files as they should be; empty when they are. Raises :class:`CatalogError` for what is no JSON."""
    catalog = _catalog(repository)
    orphans = [path for path in sorted(repository.pages) if path not in catalog.positions]
    doomed = _doomed(repository, catalog)
    dropped = tuple(
        sorted({catalog.paths[number] for number in doomed if catalog.paths[number] not in repository.pages})
    )
    files: dict[str, bytes] = {}
    if orphans or doomed or repository.catalog is None:
        kept = parse(catalog_edit.without(catalog, doomed)) if doomed else catalog
        entries = [catalog_edit.entry_of_page(path, repository.pages[path]) for path in orphans]
        files["catalog.json"] = catalog_edit.upsert(kept, entries, now)
    final = parse(files["catalog.json"]) if files else catalog
    index = _mended_index(repository, final, set(dropped), now)
    if index is not None:
        files["index.md"] = index.encode("utf-8", "surrogateescape")
    return Mended(files, tuple(orphans), dropped)


def _catalog(repository: Repository) -> Catalog:
    has_text = repository.catalog is not None and bool(repository.catalog.strip())
    if has_text or (repository.catalog is not None and repository.pages):
        return parse(repository.catalog or b"")
    return parse(b"{}")


def _doomed(repository: Repository, catalog: Catalog) -> list[int]:
    """Numbers of entries that go: no file, a second entry of one path, a path that cannot be a page."""
    numbers = []
    for number, path in enumerate(catalog.paths):
        is_double = path in catalog.positions and catalog.positions[path] != number
        is_dead = path not in repository.pages and not is_hidden(path)
        if path and (is_double or is_dead or problem_with_page_path(path)):
            numbers.append(number)
    return numbers


def _catalog_findings(repository: Repository, catalog: Catalog) -> list[Finding]:
    findings = []
    for path, count in Counter(path for path in catalog.paths if path).items():
        if count > 1:
            findings.append(Finding("DUPLICATE_ENTRY", path, f"{count} entries, only the first counts", mends=True))
        if problem := problem_with_page_path(path):
            findings.append(Finding("UNSAFE_PATH", path, f"its entry {problem}", mends=True))
        elif is_hidden(path):
            findings.append(Finding("HIDDEN_ENTRY", path, "is listed, but never shown", kind="warning"))
        elif path not in repository.pages:
            findings.append(Finding("DEAD_ENTRY", path, "is listed, but there is no such page", mends=True))
    nameless = sum(1 for path in catalog.paths if not path)
    if nameless:
        findings.append(
            Finding("ENTRY_WITHOUT_PATH", "catalog.json", f"{nameless} entries name no page", kind="warning")
        )
    orphans = [path for path in sorted(repository.pages) if path not in catalog.positions]
    return findings + [
        Finding("ORPHAN", path, "is not listed in catalog.json: nobody finds it", mends=True) for path in orphans
    ]


def _index_findings(repository: Repository, catalog: Catalog) -> list[Finding]:
    if repository.index is None:
        return (
            [Finding("INDEX_MISSING", "index.md", "not there", kind="warning", mends=True)] if repository.pages else []
        )
    listed = set(index_page.listed_paths(repository.index))
    known = repository.pages.keys() & catalog.positions.keys()
    findings = [
        Finding("INDEX_LINE_MISSING", path, "has no line in index.md", kind="warning", mends=True)
        for path in sorted(known - listed)
    ]
    dead = [path for path in sorted(listed) if path.endswith(".md") and path not in repository.pages and is_page(path)]
    return findings + [
        Finding("INDEX_LINE_DEAD", path, "index.md points to it, but it is not there", kind="warning",
                mends=path in catalog.positions)
        for path in dead
    ]  # fmt: skip


def _mended_index(repository: Repository, catalog: Catalog, dropped: set[str], now: str) -> str | None:
    """The index with a line for each listed page and none for dropped entries; ``None`` when it is so already."""
    text = repository.index
    visible = [path for path in catalog.positions if path in repository.pages]
    if text is None or not text.strip():
        return index_page.create(_lines(catalog, visible), now) if visible else None
    listed = set(index_page.listed_paths(text))
    without_dead = index_page.without(text, dropped & listed)
    missing = [path for path in visible if path not in listed]
    if not missing and without_dead == text:
        return None
    return index_page.update(without_dead, list(_lines(catalog, missing)), catalog.positions, now)


def _lines(catalog: Catalog, paths: Iterable[str]) -> Iterable[index_page.IndexEntry]:
    for path in paths:
        facts = entry_facts(path, catalog.entry(path) or {})
        yield index_page.IndexEntry(path, facts.title, facts.type, facts.keywords)


# ---------------------------------------------------------------- pages that rest on older evidence


@dataclass(frozen=True)
class Stale:
    """A QA page and the evidence that changed (or went) since it was written."""

    path: str
    title: str
    changed: tuple[str, ...]
    gone: tuple[str, ...]


def cited_pages(page: Page) -> list[str]:
    """Paths of the knowledge base's pages that a QA page rests on."""
    sources = page.metadata.get("sources")
    items = sources if isinstance(sources, list) else []
    paths = [item.get("path") for item in items if isinstance(item, dict) and item.get("sourceType") == "kb_page"]
    return list(dict.fromkeys(path for path in paths if isinstance(path, str) and path))
