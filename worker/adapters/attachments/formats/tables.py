"""How the sheets of a workbook share one preview, and how rows look; must not know a file format."""

from __future__ import annotations

from collections.abc import Callable

from worker.adapters.attachments.budget import fair_shares
from worker.adapters.attachments.formats.sink import EnoughError, Sink

_MAX_SHEETS_READ = 40
_WIDEST_GAP = 8


def read_sheets(names: list[str], read: Callable[[int, Sink], None], sink: Sink) -> None:
    """Read sheets one after the other; long ones give way so that each sheet shows its beginning.

    The first sheets may fill the preview; once it is full the following ones are read only to a tenth of it.
    """
    sink.meta["sheets"] = names[:100]
    texts: list[str] = []
    cut = len(names) > _MAX_SHEETS_READ
    total = 0
    for index in range(min(len(names), _MAX_SHEETS_READ)):
        part = Sink(sink.limit if total < sink.limit else sink.limit // 10)
        try:
            read(index, part)
        except EnoughError:
            cut = True
        total += part.visible
        texts.append(part.text().strip("\n"))
    room = max(0, sink.limit - sum(len(name) + 5 for name, text in zip(names, texts, strict=False) if text))
    shares = fair_shares([len(text) for text in texts], room, room)
    shown = [f"[{name}]\n{text[:share]}" for name, text, share in zip(names, texts, shares, strict=False) if text]
    sink.write("\n\n".join(shown))
    if cut or any(len(text) > share for text, share in zip(texts, shares, strict=True)):
        raise EnoughError


def row_text(cells: dict[int, str]) -> str:
    """One line, cells by column parted by tabs; wide gaps shrink."""
    line = ""
    last = -1
    for column in sorted(cells):
        line += "\t" * min(column - last if last >= 0 else min(column, _WIDEST_GAP), _WIDEST_GAP)
        line += " ".join(cells[column].splitlines()).strip()
        last = column
    return line + "\n"
