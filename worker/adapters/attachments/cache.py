"""Previews by the sha256 that we computed ourselves; must never be asked with a sha256 that somebody else stated."""

from __future__ import annotations

import contextlib
import hashlib
import json
from dataclasses import asdict
from pathlib import Path

from worker.adapters.attachments.child import ChildAnswer
from worker.paths import write_atomic

READER_VERSION = "8"
"""To be raised whenever an extractor would give another text."""

_PRIVATE = 0o600


class PreviewCache:
    """One small private file a preview below ``folder``; at most about ``max_entries``. Deletable at any time."""

    def __init__(self, folder: Path, max_entries: int = 4_096) -> None:
        self._folder = folder
        self._max_entries = max_entries

    def get(self, sha256: str, name: str, limits: str) -> ChildAnswer | None:
        """What was kept for these bytes, name ending and limits; ``None`` when nothing, or nothing readable."""
        try:
            document = json.loads(self._path(sha256, name, limits).read_bytes())
            return ChildAnswer(**document)
        except (OSError, ValueError, TypeError):
            return None

    def put(self, sha256: str, name: str, limits: str, answer: ChildAnswer) -> None:
        """Keep a settled answer. A disk that is full costs the cache, not the job."""
        if not answer.settled:
            return
        path = self._path(sha256, name, limits)
        with contextlib.suppress(OSError):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomic(path, json.dumps(asdict(answer), ensure_ascii=True).encode(), _PRIVATE)
            if path.name.startswith("00"):  # about one in 256
                self._prune()

    def _path(self, sha256: str, name: str, limits: str) -> Path:
        ending = name.rpartition(".")[2].lower()
        key = hashlib.sha256(f"{READER_VERSION}\n{limits}\n{ending}".encode("utf-8", "surrogatepass")).hexdigest()[:12]
        return self._folder / f"{sha256}-{key}.json"

    def _prune(self) -> None:
        entries = sorted(self._folder.glob("*.json"), key=lambda path: path.stat().st_mtime)
        for path in entries[: max(0, len(entries) - self._max_entries)]:
            path.unlink(missing_ok=True)
