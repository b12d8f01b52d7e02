"""What a batch of QA pages changes in the repository's files at one commit; must not write or push anything.

CONTRACT §4.6: which name a page gets, when it replaces an older one, and what ``catalog.json`` and ``index.md`` become.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, Protocol

from tasks.contract.ids import is_safe_task_id
from tasks.contract.outcome import QaPage, Receipt
from tasks.contract.shape import JsonObject
from tasks.kb import catalog_edit, index_page, paths, qa_page
from tasks.kb.catalog import Catalog, CatalogError, entry_facts, parse
from tasks.kb.page import Page, decode, read_page
from tasks.ports import Change

CATALOG = "catalog.json"
INDEX = "index.md"
FOLDER = "qa"

_PAGE_ID = re.compile(rb'"(qa-[0-9a-f]{12})"')
_OWN_ID = re.compile(rb"""^id:[ \t]*["']?(qa-[0-9a-f]{12})\b""", re.MULTILINE)
_START_BYTES = 2048  # the id is the first thing that we write into a page
Kind = Literal["file", "folder", "other"]
"""``other``: a symbolic link or a submodule."""


class HeadView(Protocol):
    """The repository's files at the commit that the batch is built on."""

    @property
    def commit(self) -> str:
        """Its id, ``""`` for an empty repository."""

    def kind(self, path: str) -> Kind | None:
        """What stands at a name of the root or of ``qa/``; ``None``: nothing."""

    def names(self, folder: str) -> Iterable[str]:
        """Names of the direct entries of ``folder``."""

    def read(self, path: str) -> bytes:
        """A file's bytes."""

    def starts(self, paths: Sequence[str], size: int) -> Iterator[tuple[str, bytes]]:
        """Path and first bytes of those of ``paths`` (one folder deep) that are files."""

    def pages(self) -> Iterator[tuple[str, bytes]]:
        """Path and bytes of every file of the whole tree that can be a visible page."""

    def has_pages(self) -> bool:
        """Whether :meth:`pages` would yield anything."""


class RefusedError(Exception):
    """This page, or the whole batch, is not written; the argument is the Chinese sentence for ``errors[]``."""


@dataclass(frozen=True)
class Plan:
    """``files``: path → new bytes, empty when nothing is to be written · ``receipts``: one a change, in order, without

    a commit id where a commit is still to be made · ``written``: the task ids that the commit is for, in order ·
    ``catalog``: as it is afterwards.
    """

    files: dict[str, bytes]
    receipts: list[Receipt]
    written: list[str]
    catalog: Catalog | None = None


def plan_batch(head: HeadView, changes: Sequence[Change], now: str, known: Catalog | None = None) -> Plan:
    """Files and receipts for ``changes`` on top of ``head``. What it cannot work on is refused by name.

    ``known``: a catalog that need not be parsed again if it is this one.
    """
    try:
        catalog = _read_catalog(head, known)
        index = _read_index(head)
    except RefusedError as refusal:
        return Plan({}, [_refused(change, str(refusal)) for change in changes], [])
    placing = _Placing(head, catalog)
    placed = [(change, placing.place(change)) for change in changes]
    entries = [qa_page.entry_at(change.page, spot.path) for change, spot in placed if spot.writes]
    if not entries:
        return Plan({}, [_receipt(change, spot, {}) for change, spot in placed], [])
    final = catalog_edit.final_entries(catalog, entries)
    files = dict(placing.files)
    after = catalog_edit.upserted(catalog, entries, now)
    files[CATALOG] = catalog_edit.as_file(after)
    files[INDEX] = _new_index(index, catalog, final, now)
    written = [change.task_id for change, spot in placed if spot.writes]
    return Plan(files, [_receipt(change, spot, final) for change, spot in placed], written, after)


# ---------------------------------------------------------------- names


@dataclass(frozen=True)
class _Spot:
    """Where a change goes. ``error``: nowhere. ``commit``: it is there already, as it stands."""

    path: str = ""
    created: bool = False
    error: str = ""
    commit: str = ""

    @property
    def writes(self) -> bool:
        return not self.error and not self.commit


@dataclass
class _Placing:
    """Gives each change its name; a later change of the batch sees the pages of the earlier ones."""

    head: HeadView
    catalog: Catalog
    files: dict[str, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._owners: dict[str, str] = {}
        self._taken: dict[str, set[str]] = {}
        if self.head.kind(FOLDER) == "folder":
            for name in self.head.names(FOLDER):
                self._take(f"{FOLDER}/{name}")

    def place(self, change: Change) -> _Spot:
        if problem := self._problem(change):
            return _Spot(error=problem)
        page = change.page
        for path in dict.fromkeys([*self._paths_of(page.id), page.path, paths.suffixed(page.path, change.task_id)]):
            if path not in self._taken.get(paths.clash_key(path), {path: None}):
                continue  # differs from a known name only in case or Unicode form
            old = self._page_at(path)
            if old is None:
                if not self._is_free(path):
                    continue
                return self._put(path, page, None)
            if not _is_untouched(old, page.id):
                continue
            if self._is_this_very_page(path, old, change):
                return _Spot(path=path, commit=self.head.commit)
            return self._put(path, page, old)
        return _Spot(error=f"问答页面 {page.path} 的名称已被占用，未写入。")

    def _problem(self, change: Change) -> str:
        path = change.page.path
        if not is_safe_task_id(change.task_id):
            return "任务编号含有不允许的字符，问答页面未写入。"
        if not _is_qa_page(path):
            return f"问答页面路径 {path!r} 不安全，未写入。"
        if self.head.kind(FOLDER) not in ("folder", None):
            return "知识库根目录下的 qa 不是文件夹，问答页面未写入；请由管理员处理后重试。"
        return ""

    def _put(self, path: str, page: QaPage, old: Page | None) -> _Spot:
        self.files[path] = qa_page.render(page, old.metadata if old else None).encode()
        self._owners[path] = page.id
        self._take(path)
        return _Spot(path=path, created=old is None)

    def _take(self, path: str) -> None:
        self._taken.setdefault(paths.clash_key(path), set()).add(path)

    def _paths_of(self, page_id: str) -> list[str]:
        """Where pages with this id are: of this batch, then of the repository."""
        return [path for path, owner in self._owners.items() if owner == page_id] + self._known.get(page_id, [])

    @cached_property
    def _known(self) -> dict[str, list[str]]:
        """Page id → paths below ``qa/``, as the catalog tells them.

        Another writer's catalog need not name our ids (CONTRACT §4.6 lists no such field), nor every page: a page of
        which it tells none is asked itself.
        """
        found: dict[str, list[str]] = {}
        silent = {path for paths_of_key in self._taken.values() for path in paths_of_key if _is_qa_page(path)}
        for number, path in enumerate(self.catalog.paths):
            if _is_qa_page(path) and (ids := _PAGE_ID.findall(self.catalog.raw[number])):
                silent.discard(path)
                for page_id in ids:
                    found.setdefault(page_id.decode(), []).append(path)
        for path, data in self.head.starts(sorted(silent), _START_BYTES):
            if own := _OWN_ID.search(data):
                found.setdefault(own[1].decode(), []).append(path)
        return found

    def _page_at(self, path: str) -> Page | None:
        if path in self.files:
            return read_page(decode(self.files[path]).text)
        return read_page(decode(self.head.read(path)).text) if self.head.kind(path) == "file" else None

    def _is_free(self, path: str) -> bool:
        return path not in self.files and self.head.kind(path) is None

    def _is_this_very_page(self, path: str, old: Page, change: Change) -> bool:
        """The history lost the trailer (it was rewritten), the page is still there."""
        fields = change.page.frontmatter
        return path not in self.files and all(
            old.metadata.get(name) == fields.get(name) for name in ("taskId", "contentHash")
        )


def _is_qa_page(path: str) -> bool:
    return path.startswith(f"{FOLDER}/") and path.count("/") == 1 and paths.is_page(path)


def _is_untouched(page: Page, page_id: str) -> bool:
    """Ours by id, and no person has edited the text since."""
    return page.metadata.get("id") == page_id and page.metadata.get("contentHash") == qa_page.content_hash(page.body)


# ---------------------------------------------------------------- catalog and index


def _read_catalog(head: HeadView, known: Catalog | None) -> Catalog:
    """The catalog; a missing one as it would be with every page of the tree, so that creating it hides none of them."""
    kind = head.kind(CATALOG)
    if kind is None:
        entries = [catalog_edit.entry_of_page(path, read_page(decode(data).text)) for path, data in head.pages()]
        return parse(catalog_edit.create(entries, "") if entries else b"{}")
    if kind != "file":
        raise RefusedError(f"知识库的 {CATALOG} 不是普通文件，问答页面未写入；请修复后重试。")
    data = head.read(CATALOG)
    if known is not None and known.spans and not known.bom and known.data == data:
        return known
    has_text = bool(data.strip(b"\xef\xbb\xbf \t\r\n"))
    try:
        catalog = parse(data if has_text or head.has_pages() else b"{}")
    except CatalogError as error:
        raise RefusedError(f"知识库的 {CATALOG} {error.zh}，问答页面未写入；请修复后重试。") from error
    if not catalog.spans and head.has_pages():
        raise RefusedError(f"知识库的 {CATALOG} 没有任何条目，而仓库中已有页面，问答页面未写入；请修复后重试。")
    return catalog


def _read_index(head: HeadView) -> str | None:
    kind = head.kind(INDEX)
    if kind is None:
        return None
    if kind != "file":
        raise RefusedError(f"知识库的 {INDEX} 不是普通文件，问答页面未写入；请修复后重试。")
    return head.read(INDEX).decode("utf-8", "surrogateescape")


def _new_index(old: str | None, catalog: Catalog, final: dict[str, JsonObject], now: str) -> bytes:
    ours = [_index_entry(path, entry) for path, entry in final.items()]
    if old is None or not old.strip():
        known = [_index_entry(p, catalog.entry(p) or {}) for p in catalog.positions if p not in final]
        return index_page.create([*known, *ours], now).encode("utf-8", "surrogateescape")
    return index_page.update(old, ours, catalog.positions, now).encode("utf-8", "surrogateescape")


def _index_entry(path: str, entry: JsonObject) -> index_page.IndexEntry:
    facts = entry_facts(path, entry)
    return index_page.IndexEntry(path, facts.title, facts.type, facts.keywords)


# ---------------------------------------------------------------- receipts


def _receipt(change: Change, spot: _Spot, final: dict[str, JsonObject]) -> Receipt:
    if spot.error:
        return _refused(change, spot.error)
    entry = final.get(spot.path) or qa_page.entry_at(change.page, spot.path)
    return Receipt(task_id=change.task_id, path=spot.path, created=spot.created, entry=entry, commit_id=spot.commit)


def _refused(change: Change, reason: str) -> Receipt:
    return Receipt(task_id=change.task_id, errors=(reason,))
