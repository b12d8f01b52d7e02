"""Which pages are visible at a commit, and what the catalog says about each (CONTRACT §4.1); must not read pages."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from tasks.contract.shape import Note
from tasks.kb import catalog as catalog_file
from tasks.kb.paths import is_page
from worker.adapters.kb_git.git import NULL_ID, BareRepo, TreeEntry

CATALOG = "catalog.json"
INDEX = "index.md"
FILE_MODES = frozenset({"100644", "100755"})


@dataclass(frozen=True)
class Entry:
    """A visible page: its NFC path, the blob, and its catalog entry as written (``None`` when there is no catalog)."""

    path: str
    blob: str
    catalog: bytes | None


@dataclass(frozen=True)
class Listing:
    """The visible pages of one commit in catalog order, and remarks about the catalog as a whole.

    ``missing``: paths of the catalog without a file. ``is_plain``: nothing about paths or entries was odd, so that a
    change of the catalog can be worked in entry by entry.
    """

    entries: Mapping[str, Entry]
    notes: tuple[Note, ...]
    index_blob: str = ""
    catalog_blob: str = ""
    missing: tuple[str, ...] = ()
    is_sorted: bool = False
    is_plain: bool = False


def list_pages(repo: BareRepo, commit: str) -> tuple[Listing, bytes]:
    """The pages at ``commit`` and the catalog's bytes (``b""`` when it cannot be used)."""
    if commit == NULL_ID:
        note = Note(code="KB_EMPTY", message="知识库仓库还是空的，没有任何提交")
        return Listing({}, (note,)), b""
    tree = {entry.path: entry for entry in repo.tree(commit) if entry.kind == "blob" and entry.mode in FILE_MODES}
    pages, notes = _pages(tree)
    index_blob = tree[INDEX].id if INDEX in tree else ""
    catalog, problem = _catalog(repo, tree.get(CATALOG))
    if catalog is None:
        fallback = {path: Entry(path, entry.id, None) for path, entry in sorted(pages.items())}
        return Listing(fallback, (problem, *notes), index_blob), b""
    entries, missing = {}, []
    for raw_path, number in catalog.positions.items():
        path = unicodedata.normalize("NFC", raw_path)
        if path in pages and path not in entries:
            entries[path] = Entry(path, pages[path].id, catalog.raw[number])
        elif path not in pages and is_page(path):
            missing.append(path)
    odd = catalog.notes()
    listing = Listing(
        entries,
        (*notes, *odd, *missing_note(len(missing))),
        index_blob,
        tree[CATALOG].id,
        tuple(missing),
        catalog.is_sorted,
        is_plain=not (notes or odd) and _all_composed(catalog.positions),
    )
    return listing, catalog.data


def missing_note(count: int) -> list[Note]:
    """The remark about entries whose file is not there."""
    if not count:
        return []
    message = f"catalog.json 中有 {count} 个条目的文件不存在，已跳过"
    return [Note(code="CATALOG_FILE_MISSING", path=CATALOG, message=message)]


def entry_object(raw: bytes | None) -> dict[str, object] | None:
    """A catalog entry as an object."""
    return None if raw is None else catalog_file.as_object(msgspec.Raw(raw))


def _all_composed(paths: Mapping[str, int]) -> bool:
    return all(path.isascii() or unicodedata.is_normalized("NFC", path) for path in paths)


def _pages(tree: Mapping[str, TreeEntry]) -> tuple[dict[str, TreeEntry], list[Note]]:
    """Files that can be pages, by NFC path. Of two names that differ only in their Unicode form the NFC one counts."""
    pages: dict[str, TreeEntry] = {}
    notes = []
    for raw_path, entry in tree.items():
        path = raw_path if raw_path.isascii() else unicodedata.normalize("NFC", raw_path)
        if not is_page(path):
            continue
        if path in pages:
            message = f"{path} 在仓库中有两个仅 Unicode 形式不同的文件，只读取其中一个"
            notes.append(Note(code="PATH_AMBIGUOUS", path=path, message=message))
        if path not in pages or raw_path == path:
            pages[path] = entry
    return pages, notes


def _catalog(repo: BareRepo, entry: TreeEntry | None) -> tuple[catalog_file.Catalog | None, Note]:
    """The catalog, or why there is none to go by."""

    def note(code: str, reason: str) -> Note:
        message = f"catalog.json {reason}，改为列出仓库中的全部 Markdown 页面"
        return Note(code=code, path=CATALOG, message=message)

    if entry is None:
        return None, note("CATALOG_MISSING", "不存在")
    try:
        catalog = catalog_file.parse(repo.read(entry.id))
    except catalog_file.CatalogError as error:
        return None, note("CATALOG_INVALID", error.zh)
    if "pages" not in catalog.members:
        return None, note("CATALOG_INVALID", "没有 pages 列表")
    return catalog, note("", "")
