"""Commits without a working tree: reads the trees of one commit, writes blobs, trees and a commit; must not push.

All objects of a commit are one pack, written inside this process: a git process for each would cost more than the push.
What is big and hardly changed goes in as a delta of what it was, which the push then sends as it is: neither we nor git
pack 75 MB of catalog for ten new pages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from tasks.kb import paths
from worker.adapters.kb_git import packs
from worker.adapters.kb_git.commit_plan import Kind
from worker.adapters.kb_git.deltas import as_delta, differences
from worker.adapters.kb_git.git import BareRepo, Signature, TreeEntry

_FILE = "100644"
_TREE = "40000"
_KINDS: dict[str, Kind] = {"100644": "file", "100755": "file", "100664": "file", "40000": "folder"}

BIG_BYTES = 1 << 20
"""From this size on an object is written as a delta."""

_LONGEST_CHAIN = 16  # deltas on deltas: each costs a reader as much as the text is long
_WORTH = 4

Level = dict[str, tuple[str, str]]
"""One level of a tree: name → mode, object id. Names keep bytes that are no UTF-8 as surrogate escapes."""


@dataclass
class GitHead:
    """The files at one commit (``commit_plan.HeadView``); ``commit`` is ``""`` for an empty repository.

    ``texts``: bytes by object id that need not be read from the repository; what is read of the root is added.
    """

    repo: BareRepo
    commit: str
    texts: dict[str, bytes] = field(default_factory=dict)

    @cached_property
    def root(self) -> Level:
        """The root of the tree."""
        if not self.commit:
            return {}
        tree = self.repo.read(self.commit).split(b"\n", 1)[0].removeprefix(b"tree ").decode("ascii")
        return _parse_tree(self.repo.read(tree), len(self.commit) // 2)

    def level(self, folder: str) -> Level:
        """The direct entries of a folder of the root, none when there is no such folder."""
        if folder not in self._levels:
            mode, object_id = self.root.get(folder, ("", ""))
            data = self.text(object_id) if mode == _TREE else b""
            self._levels[folder] = _parse_tree(data, len(self.commit) // 2)
        return self._levels[folder]

    @cached_property
    def _levels(self) -> dict[str, Level]:
        return {}

    def kind(self, path: str) -> Kind | None:
        """What stands at a name of the root or of one of its folders."""
        found = self._entry(path)
        return None if found is None else _KINDS.get(found[0], "other")

    def names(self, folder: str) -> Iterable[str]:
        """Names of the direct entries of ``folder``."""
        return self.level(folder)

    def read(self, path: str) -> bytes:
        """A file's bytes."""
        found = self._entry(path)
        if found is None:
            raise KeyError(path)
        return self.repo.read(found[1]) if "/" in path else self.text(found[1])

    def starts(self, paths: Sequence[str], size: int) -> Iterator[tuple[str, bytes]]:
        """Path and first bytes of those of ``paths`` (one folder deep) that are files."""
        files = [path for path in paths if self.kind(path) == "file"]
        blobs = self.repo.read_many([found[1] for path in files if (found := self._entry(path))], size)
        for path, (_, blob) in zip(files, blobs, strict=True):
            if blob is not None:
                yield path, blob.data

    def text(self, object_id: str) -> bytes:
        """An object that is asked for more than once."""
        if object_id not in self.texts:
            self.texts[object_id] = self.repo.read(object_id)
        return self.texts[object_id]

    def pages(self) -> Iterator[tuple[str, bytes]]:
        """Path and bytes of every file that can be a visible page."""
        files = self._page_files()
        blobs = self.repo.read_many([file.id for file in files])
        for file, (_, blob) in zip(files, blobs, strict=True):
            if blob is not None:
                yield file.path, blob.data

    def has_pages(self) -> bool:
        """Whether there is any."""
        return bool(self._page_files())

    def _page_files(self) -> list[TreeEntry]:
        entries = self.repo.tree(self.commit) if self.commit else []
        return [entry for entry in entries if entry.mode.startswith("100") and paths.is_page(entry.path)]

    def _entry(self, path: str) -> tuple[str, str] | None:
        folder, slash, name = path.rpartition("/")
        return (self.level(folder) if slash else self.root).get(name)


def write_commit(head: GitHead, files: Mapping[str, bytes], message: str, author: Signature) -> str:
    """A commit on top of ``head`` in which ``files`` (root, or one folder deep) have these bytes; its id.

    Every other entry stays as it is, whatever its mode; a replaced file keeps its own. ``head.texts`` holds the new
    bytes of the root's files afterwards.
    """
    objects = _Objects(head)
    root = dict(head.root)
    folders: dict[str, Level] = {}
    for path, data in files.items():
        folder, slash, name = path.rpartition("/")
        level = folders.setdefault(folder, dict(head.level(folder))) if slash else root
        mode, before = level.get(name, (_FILE, ""))
        level[name] = (mode, objects.store(b"blob", data, "" if slash else before))
        if not slash:
            head.texts[level[name][1]] = data
    for folder, level in folders.items():
        root[folder] = (_TREE, objects.store(b"tree", _tree_bytes(level), head.root.get(folder, ("", ""))[1]))
    tree = objects.store(b"tree", _tree_bytes(root))
    commit = objects.store(b"commit", _commit_bytes(tree, head.commit, message, author))
    objects.pack.write()
    return commit


class _Objects:
    """The pack of one commit."""

    def __init__(self, head: GitHead) -> None:
        self._head = head
        self._folder = head.repo.path / "objects" / "pack"
        sample = head.commit or head.repo.write_blob(b"")
        self.pack = packs.PackWriter(self._folder, len(sample) // 2)

    def store(self, kind: bytes, data: bytes, before: str = "") -> str:
        """Put one object into the pack; its id. ``before``: the object in whose place it comes."""
        if not before or len(data) < BIG_BYTES:
            return self.pack.add(kind, data)
        old = self._head.text(before)
        delta = as_delta(len(old), differences(old, data))
        object_id = self.pack.id_of(kind, data)
        if object_id == before:
            return before
        if len(delta) > len(data) // _WORTH:
            return self.pack.add(kind, data)
        self.pack.copy(packs.chain(self._folder, before, most=_LONGEST_CHAIN))
        self.pack.add(kind, old)  # when it is no such chain; a base lies in the same pack
        self.pack.add_delta(object_id, before, delta)
        return object_id


def _commit_bytes(tree: str, parent: str, message: str, author: Signature) -> bytes:
    who = f"{_plain(author.name)} <{_plain(author.email)}> {author.time} +0000"
    parents = [f"parent {parent}"] if parent else []
    return "\n".join([f"tree {tree}", *parents, f"author {who}", f"committer {who}", "", message]).encode()


def _parse_tree(data: bytes, id_bytes: int) -> Level:
    level: Level = {}
    at = 0
    while at < len(data):
        space = data.index(b" ", at)
        end = data.index(b"\0", space)
        name = data[space + 1 : end].decode("utf-8", "surrogateescape")
        level[name] = (data[at:space].decode("ascii"), data[end + 1 : end + 1 + id_bytes].hex())
        at = end + 1 + id_bytes
    return level


def _tree_bytes(level: Level) -> bytes:
    """Git's own order: by bytes, a folder as if its name ended in a slash."""
    raw = [(name.encode("utf-8", "surrogateescape"), mode, object_id) for name, (mode, object_id) in level.items()]
    raw.sort(key=lambda entry: entry[0] + b"/" if entry[1] == _TREE else entry[0])
    return b"".join(mode.encode() + b" " + name + b"\0" + bytes.fromhex(object_id) for name, mode, object_id in raw)


def _plain(text: str) -> str:
    """What may stand in a commit's header."""
    return "".join(char for char in text if char.isprintable() and char not in "<>").strip() or "kbw"
