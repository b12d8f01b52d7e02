"""Jupyter notebooks: what people wrote and what was printed; pictures, which fill such files, are left out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, BinaryIO

from worker.adapters.attachments.formats import plain
from worker.adapters.attachments.formats.decode import decode
from worker.adapters.attachments.formats.sink import Sink

_READ = 32 * 1024 * 1024


def extract(file: BinaryIO, sink: Sink, _kind: str) -> None:
    """Cells in order, parted by an empty line; a file that is no notebook is shown as the JSON it is."""
    data = file.read(_READ)
    cells = _cells(data)
    if cells is None:
        file.seek(0)
        plain.extract(file, sink, "json")
        return
    for cell in cells:
        for text in _texts(cell):
            sink.write(text + "\n\n")


def _cells(data: bytes) -> list[dict[str, Any]] | None:
    try:
        cells = json.loads(decode(data).text)["cells"]
    except (ValueError, RecursionError, KeyError, TypeError):
        return None
    return [cell for cell in cells if isinstance(cell, dict)] if isinstance(cells, list) else None


def _texts(cell: dict[str, Any]) -> Iterator[str]:
    yield _joined(cell.get("source"))
    outputs = cell.get("outputs")
    for output in outputs if isinstance(outputs, list) else ():
        if isinstance(output, dict):
            data = output.get("data")
            yield _joined(output.get("text") or (data.get("text/plain") if isinstance(data, dict) else None))


def _joined(lines: object) -> str:
    """Notebooks keep a text as one string or as a list of lines."""
    return "".join(line for line in lines if isinstance(line, str)) if isinstance(lines, list) else str(lines or "")
