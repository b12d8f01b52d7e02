"""What a number in a cell means: dates, durations, percents and plain figures; must not know a container format."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from worker.adapters.attachments.formats.xml_stream import Attributes, local

_BUILT_IN = {
    **dict.fromkeys((*range(14, 23), *range(27, 37), 45, 47, *range(50, 59)), "date"),
    46: "duration",
    **dict.fromkeys((9, 10), "percent"),
}
"""Number formats without a code of their own (ECMA-376 part 1, 18.8.30; 27-36 and 50-58 in East Asian locales)."""

_QUOTED = re.compile(r'"[^"]*"|\\.|\[[^\]]*\]|[_*].')
_DURATION = re.compile(r"\[(h+|m+|s+)\]", re.IGNORECASE)
_DATE_LETTERS = re.compile(r"[ymdhs年月日]", re.IGNORECASE)
_LAST_SERIAL = 2_958_466
_LARGEST_SHARE = 1e6


class NumberStyles:
    """Collects from ``styles.xml`` (or is told) which cell styles show dates or percents, and shows them."""

    def __init__(self, *, epoch_1904: bool = False) -> None:
        self._epoch = datetime(1904, 1, 1) if epoch_1904 else datetime(1899, 12, 30)  # noqa: DTZ001 - sheets have no zone
        self._formats = dict(_BUILT_IN)
        self._styles: list[str] = []
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
        plain = _QUOTED.sub("", code)
        if _DURATION.search(code):
            self._formats[number] = "duration"
        elif _DATE_LETTERS.search(plain) and "general" not in code.lower():
            self._formats[number] = "date"
        else:
            self._formats[number] = "percent" if "%" in plain else ""

    def add_style(self, format_number: int) -> None:
        """The next cell style uses this format."""
        self._styles.append(self._formats.get(format_number, ""))

    def shown(self, style: str | int, raw: str) -> str | None:
        """``2018-09-20``, ``2018-09-20 08:30``, ``30:15:00``, ``15.5%``; ``None``: the style says nothing special."""
        index = _number(style)
        kind = self._styles[index] if 0 <= index < len(self._styles) else ""
        try:
            value = float(raw)
        except ValueError:
            return None
        if kind == "percent" and abs(value) < _LARGEST_SHARE:
            return f"{value * 100:.10g}%"
        if not kind or not 0 <= value < _LAST_SERIAL:
            return None
        return _duration(value) if kind == "duration" else self._date(value)

    def _date(self, serial: float) -> str:
        moment = self._epoch + timedelta(seconds=round(serial * 86_400))
        if serial < 1:
            return moment.strftime("%H:%M:%S").removesuffix(":00")
        if serial == int(serial):
            return moment.strftime("%Y-%m-%d")
        return moment.strftime("%Y-%m-%d %H:%M:%S").removesuffix(":00")


def _duration(days: float) -> str:
    minutes, seconds = divmod(round(days * 86_400), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"


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
