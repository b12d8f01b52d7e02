"""Reads bytes the way the child process does, without the process."""

from __future__ import annotations

import io

from worker.adapters.attachments.formats.extract import extract


def answer(data: bytes, name: str = "a", limit: int = 8000) -> dict[str, object]:
    """The child's answer for these bytes."""
    return extract(io.BytesIO(data), name, limit, wall_s=600)  # a loaded machine is slow; the CPU is still counted


def text_of(data: bytes, name: str = "a", limit: int = 8000) -> str:
    """The preview; fails with the answer when there is none."""
    found = answer(data, name, limit)
    assert "text" in found, found
    assert "\ufffd" not in str(found["text"])
    return str(found["text"])


def fault_of(data: bytes, name: str = "a") -> str:
    """The fault code; fails with the answer when there is text."""
    found = answer(data, name)
    assert "fault" in found, found
    return str(found["fault"])


def meta_of(data: bytes, name: str = "a", limit: int = 8000) -> dict[str, object]:
    """What is told about the file."""
    meta = answer(data, name, limit)["meta"]
    assert isinstance(meta, dict)
    return meta
