"""Packs: read as git wrote them, written as git reads them."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from worker.adapters.kb_git import packs
from worker.adapters.kb_git.deltas import as_delta, differences, edited, from_delta


def git(repo: Path, *args: str, data: bytes = b"") -> bytes:
    return subprocess.run(["git", "-C", str(repo), *args], input=data, capture_output=True, check=True).stdout


@pytest.fixture(params=["sha1", "sha256"])
def repo(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    git(tmp_path, "init", "-q", "--bare", f"--object-format={request.param}", "repo.git")
    return tmp_path / "repo.git"


def store(repo: Path, data: bytes) -> str:
    return git(repo, "hash-object", "-w", "--stdin", data=data).decode().strip()


def texts(count: int) -> list[bytes]:
    chance = random.Random(3)
    found = [chance.randbytes(100_000)]
    for _ in range(count - 1):
        at = chance.randrange(90_000)
        found.append(found[-1][:at] + chance.randbytes(50) + found[-1][at + 20 :])
    return found


@pytest.mark.parametrize("form", ["--no-delta-base-offset", "--delta-base-offset"])
def test_what_git_packed_as_deltas_is_read_back(repo: Path, form: str) -> None:
    known = {store(repo, data): data for data in texts(6)}
    folder = repo / "objects" / "pack"
    git(repo, "pack-objects", "-q", form, str(folder / "pack"), data="\n".join(known).encode())
    git(repo, "prune-packed")
    chains = {object_id: packs.chain(folder, object_id) for object_id in known}
    assert max(map(len, chains.values())) > 1
    for object_id, steps in chains.items():
        text = steps[-1].unpacked()
        for step in reversed(steps[:-1]):
            text = edited(text, from_delta(step.unpacked(), lambda a, b, text=text: text[a:b], len(text)))  # type: ignore[misc]
        assert text == known[object_id]
        if len(steps) > 1:
            assert packs.chain(folder, object_id, steps[0].base) == steps[:1]
    assert packs.find(folder, "ab" * (len(next(iter(known))) // 2)) is None


def test_git_takes_our_packs_for_its_own(repo: Path, tmp_path: Path) -> None:
    folder = repo / "objects" / "pack"
    size = len(store(repo, b"")) // 2
    old, new, last = texts(3)
    first = packs.PackWriter(folder, size)
    ids = [first.add(b"blob", old), first.add(b"blob", b"x"), first.add(b"blob", b"x")]
    first.write()
    second = packs.PackWriter(folder, size)
    second.copy(packs.chain(folder, ids[0]))
    ids.append(second.id_of(b"blob", new))
    second.add_delta(ids[-1], ids[0], as_delta(len(old), differences(old, new)))
    ids.append(second.id_of(b"blob", last))
    second.add_delta(ids[-1], ids[-2], as_delta(len(new), differences(new, last)))
    written = second.write()
    assert [git(repo, "cat-file", "blob", object_id) for object_id in ids] == [old, b"x", b"x", new, last]
    git(repo, "verify-pack", str(written))
    git(repo, "fsck", "--strict")
    again = tmp_path / "again.idx"
    git(repo, "index-pack", "-o", str(again), str(written))
    assert again.read_bytes() == written.with_suffix(".idx").read_bytes()
    assert written.stat().st_size < 1.1 * len(old)
    assert not list(folder.glob("tmp_*"))


def test_a_damaged_pack_is_not_read(repo: Path) -> None:
    folder = repo / "objects" / "pack"
    writer = packs.PackWriter(folder, len(store(repo, b"")) // 2)
    object_id = writer.add(b"blob", texts(1)[0])
    written = writer.write()
    data = bytearray(written.read_bytes())
    data[len(data) // 2] ^= 1
    written.unlink()
    written.write_bytes(data)
    assert packs.find(folder, object_id) is None
    assert packs.chain(folder, object_id) == []
    written.unlink()
    assert packs.find(folder, object_id) is None
    written.with_suffix(".idx").unlink()
    written.with_suffix(".idx").write_bytes(b"")
    assert packs.find(folder, object_id) is None
