"""What a number in a cell means: date styles and plain figures; must not know a container format."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from worker.adapters.attachments.formats.xml_stream import Attributes, local

_DATE_FORMATS = frozenset((*range(14, 23), *range(27, 37), *range(45, 48), *range(50, 59)))
"""Built-in number formats of dates and times (ECMA-376 part 1, 18.8.30; 27-36 and 50-58 in East Asian locales)."""

_QUOTED = re.compile(r'"[^"]*"|\\.|\[[^\]]*\]|[_*].')
_DATE_LETTERS = re.compile(r"[ymdhs年月日]", re.IGNORECASE)
_LAST_SERIAL = 2_958_466


class DateStyles:
    """Collects from ``styles.xml`` (or is told) which cell styles show dates, and shows them."""

    def __init__(self, *, epoch_1904: bool = False) -> None:
        self._epoch = datetime(1904, 1, 1) if epoch_1904 else datetime(1899, 12, 30)  # noqa: DTZ001 - sheets have no zone
        self._formats: set[int] = set(_DATE_FORMATS)
        self._styles: list[bool] = []
        self._in_cell_styles = False

    def start(self, tag: str, attrs: Attributes) -> None:
        """An element of ``styles.xml`` begins."""
        name = local(tag)
        if name == "numFmt":
            self.add_format(_number(attrs.get("numFmtId")), attrs.get("formatCode", ""))
        elif name == "cellXfs":
            self._in_cell_styles = True
        elif name == "xf" and self._in_cell_styles:
            self.add_style(_number(attrs.get("numFmtId")))

    def end(self, tag: str) -> None:
        """An element of ``styles.xml`` ends."""
        if local(tag) == "cellXfs":
            self._in_cell_styles = False

    def add_format(self, number: int, code: str) -> None:
        """A custom number format."""
        if _DATE_LETTERS.search(_QUOTED.sub("", code)) and "general" not in code.lower():
            self._formats.add(number)
        else:
            self._formats.discard(number)

    def add_style(self, format_number: int) -> None:
        """The next cell style uses this format."""
        self._styles.append(format_number in self._formats)

    def shown(self, style: str | int, raw: str) -> str | None:
        """The serial number as ``2018-09-20`` or ``2018-09-20 08:30``; ``None`` when the style shows no date."""
        index = _number(style)
        if not (0 <= index < len(self._styles) and self._styles[index]):
            return None
        try:
            serial = float(raw)
        except ValueError:
            return None
        if not 0 <= serial < _LAST_SERIAL:
            return None
        moment = self._epoch + timedelta(seconds=round(serial * 86_400))
        if serial < 1:
            return moment.strftime("%H:%M:%S").removesuffix(":00")
        if serial == int(serial):
            return moment.strftime("%Y-%m-%d")
        return moment.strftime("%Y-%m-%d %H:%M:%S").removesuffix(":00")


def shown_number(raw: str) -> str:
    """``0.30000000000000004`` → ``0.3``: the 15 digits that a sheet shows, whole numbers without a point."""
    try:
        value = float(raw)
    except ValueError:
        return raw
    if value == int(value) and abs(value) < 1e15 if value == value and abs(value) != float("inf") else False:
        return str(int(value))
    return f"{value:.15g}"


def _number(value: str | int | None) -> int:
    try:
        return int(value or 0)
    except ValueError:
        return -1
