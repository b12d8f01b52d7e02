"""Commits without a working tree: reads the trees of one commit, writes blobs, trees and a commit; must not push.

Objects are written inside this process: a git process for each of them would cost more than the push. Format:
git's "Git Internals - Git Objects" (loose objects); a test holds the ids against those that git itself gives.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tasks.kb import paths
from worker.adapters.kb_git.commit_plan import Kind
from worker.adapters.kb_git.git import BareRepo, Signature, TreeEntry

_FILE = "100644"
_TREE = "40000"
_KINDS: dict[str, Kind] = {"100644": "file", "100755": "file", "100664": "file", "40000": "folder"}
_SHA1_DIGITS = 40
_FAST = 1  # zlib level: a catalog is packed anew with every commit, and pushed at once

Level = dict[str, tuple[str, str]]
"""One level of a tree: name → mode, object id. Names keep bytes that are no UTF-8 as surrogate escapes."""


@dataclass
class GitHead:
    """The files at one commit (``commit_plan.HeadView``); ``commit`` is ``""`` for an empty repository."""

    repo: BareRepo
    commit: str

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
            data = self.repo.read(object_id) if mode == _TREE else b""
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
        return self.repo.read(found[1])

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

    Every other entry stays as it is, whatever its mode; a replaced file keeps its own.
    """
    sample = head.commit or head.repo.write_blob(b"")
    objects = _Objects(head.repo.path / "objects", "sha1" if len(sample) == _SHA1_DIGITS else "sha256")
    root = dict(head.root)
    folders: dict[str, Level] = {}
    for path, data in files.items():
        folder, slash, name = path.rpartition("/")
        level = folders.setdefault(folder, dict(head.level(folder))) if slash else root
        level[name] = (level.get(name, (_FILE, ""))[0], objects.store(b"blob", data))
    for folder, level in folders.items():
        root[folder] = (_TREE, objects.store(b"tree", _tree_bytes(level)))
    tree = objects.store(b"tree", _tree_bytes(root))
    return objects.store(b"commit", _commit_bytes(tree, head.commit, message, author))


@dataclass(frozen=True)
class _Objects:
    """The loose objects of one repository."""

    folder: Path
    digest: str

    def store(self, kind: bytes, data: bytes) -> str:
        """Write one object, whole or not at all, and give its id."""
        header = b"%s %d\0" % (kind, len(data))
        digest = hashlib.new(self.digest, header, usedforsecurity=False)
        digest.update(data)
        object_id = digest.hexdigest()
        target = self.folder / object_id[:2] / object_id[2:]
        if not target.exists():
            packer = zlib.compressobj(_FAST)
            self._write(target, packer.compress(header) + packer.compress(data) + packer.flush())
        return object_id

    def _write(self, target: Path, data: bytes) -> None:
        target.parent.mkdir(exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=target.parent, prefix="tmp_obj_")  # git's own maintenance knows these
        temporary = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                os.fchmod(file.fileno(), 0o444)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


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
