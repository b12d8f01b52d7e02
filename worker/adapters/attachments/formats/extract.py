"""One file to one answer: what it is, its text, or why there is none; knows the extractors, runs in the child only."""

from __future__ import annotations

import importlib
import re
from typing import Any, BinaryIO

from worker.adapters.attachments.formats.sink import EnoughError, FormatError, Sink, time_budget
from worker.adapters.attachments.formats.sniff import sniff

_MODULES = {
    "plain": "plain",
    "docx": "word",
    "pptx": "slides",
    "xlsx": "sheet",
    "xlsb": "sheet_binary",
    "pdf": "pdf",
    "ole": "ole",
    "xls": "excel97",
    "opendocument": "opendocument",
    "epub": "epub",
    "ofd": "ofd",
    "notebook": "notebook",
    "ocr": "ocr",
    "zip": "archive",
    "html": "web_page",
    "xml": "xml_text",
    "rtf": "rtf",
    "eml": "mail",
}
_CUT_SHORT = ("CORRUPT", "TIMEOUT", "TOO_LARGE", "OUT_OF_MEMORY")
"""After these, text that was read before is still worth showing, marked as incomplete."""

# controls, no characters, and what only hides or reorders text: soft hyphens, zero-width, bidi and tag characters
_UNSHOWN = re.compile(
    "[\x00-\x08\x0b\x0e-\x1f\x7f-\x9f\xad\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff"
    "\ufdd0-\ufdef\ufffe\uffff\ud800-\udfff\U000e0000-\U000e007f]"
)
_BULLETS = str.maketrans({"\uf0b7": "•", "\uf0a7": "•", "\uf06e": "•", "\uf0d8": "•", "\uf0fc": "•", "\xa0": " "})
"""What Office's symbol fonts write in front of a list's lines."""
_LINE_ENDS = re.compile("\r\n?|\x0c|\u2028|\u2029")
_BLANK_LINES = re.compile(r"\n{3,}")
_ENDLESS_GAPS = re.compile(r"[ \t\u3000]{200,}")
_WIDE_GAPS = re.compile(r" {3,}")
_AS_WRITTEN = ("plain", "xml", "notebook")
"""Groups whose indentation means something."""
_EMPTY_WITHOUT_TEXT = ("plain", "xml", "notebook", "html", "xlsx", "xlsb", "xls", "zip")
"""Groups in which no text means nothing at all; in the others it may stand in pictures."""
_MAX_UNREADABLE = 0.2


def extract(
    file: BinaryIO, name: str, limit: int, *, cpu_s: float = 8, wall_s: float = 10, ocr: bool = False
) -> dict[str, object]:
    """``{kind, text, truncated, meta}`` or ``{kind, fault, reason, meta}``; never raises for a file.

    ``ocr``: a picture or PDF is looked at, not searched for a text layer. The seconds are when the process is ended.
    """
    time_budget.start(cpu_s, wall_s)
    kind = "unknown"
    sink = Sink(limit)
    truncated = False
    try:
        group, kind = sniff(file, name)
        sink.meta["detectedType"] = kind
        if ocr and group in ("image", "pdf"):
            group = "ocr"
        truncated = not _run(group, kind, file, sink) or "incomplete" in sink.meta
        text = tidy(sink, group, kind)
    except FormatError as error:
        return {"kind": kind, "fault": error.code, "reason": error.reason, "meta": sink.meta}
    return {"kind": kind, "text": text[:limit], "truncated": truncated or len(text) > limit, "meta": sink.meta}


def _run(group: str, kind: str, file: BinaryIO, sink: Sink) -> bool:
    """Whether the whole file was read."""
    try:
        _module(group).extract(file, sink, kind)
    except EnoughError:
        return False
    except FormatError as error:
        if error.code not in _CUT_SHORT or not sink.visible:
            raise
        sink.meta["incomplete"] = error.code
        return False
    except MemoryError as error:
        if not sink.visible:
            raise FormatError("OUT_OF_MEMORY", "needs more memory than allowed") from error
        sink.meta["incomplete"] = "OUT_OF_MEMORY"
        return False
    except BaseException as error:
        if not sink.visible:
            raise FormatError("CORRUPT", f"parser: {type(error).__name__}") from error
        sink.meta["incomplete"] = "CORRUPT"
        return False
    return True


def _module(group: str) -> Any:
    if group == "image":
        raise FormatError("NO_TEXT_LAYER", "an image")
    if group == "other":
        raise FormatError("UNSUPPORTED_TYPE", "no text format")
    return importlib.import_module(f"worker.adapters.attachments.formats.{_MODULES[group]}")


def tidy(sink: Sink, group: str, kind: str) -> str:
    """The text as it is shown. Raises when nothing, or mostly unreadable characters, are left."""
    text = _LINE_ENDS.sub("\n", sink.text())
    unreadable = text.count("\ufffd")
    if unreadable:
        sink.meta["unreadableChars"] = unreadable
        text = text.replace("\ufffd", "")
    text = _UNSHOWN.sub("", text).translate(_BULLETS)
    if group not in _AS_WRITTEN:
        text = _WIDE_GAPS.sub("  ", text)
    text = _ENDLESS_GAPS.sub(" ", text)
    text = "\n".join([line.rstrip() for line in text.split("\n")])
    text = _BLANK_LINES.sub("\n\n", text).strip("\n" if group in _AS_WRITTEN else None)
    if unreadable > (unreadable + len(text)) * _MAX_UNREADABLE:
        raise FormatError("NO_TEXT_LAYER" if group == "pdf" else "BINARY_FILE", "characters without meaning")
    if not text.strip():
        empty = group in _EMPTY_WITHOUT_TEXT or kind == "ods" or sink.meta.get("detectedType") == "xls"
        raise FormatError("EMPTY_FILE" if empty else "NO_TEXT_LAYER", "holds no text")
    return text
