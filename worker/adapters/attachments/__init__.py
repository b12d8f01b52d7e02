"""Turns files from outside into text previews, in child processes with limits; must never fail a job for a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from worker.adapters.attachments.reader import ChildProcessReader, ReaderLimits
    from worker.paths import AllowedRoots

__all__ = ["build_reader"]


def build_reader(roots: AllowedRoots, cache_dir: Path | None, limits: ReaderLimits | None = None) -> ChildProcessReader:
    """The reader with its cache in ``cache_dir`` (``None``: no cache)."""
    # imported here: every child process imports this package on its way to ``formats`` and must not pay for the rest
    from worker.adapters.attachments.cache import PreviewCache
    from worker.adapters.attachments.reader import ChildProcessReader

    return ChildProcessReader(roots, PreviewCache(cache_dir) if cache_dir else None, limits)
