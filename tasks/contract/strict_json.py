"""Strict JSON in and out (RFC 8259): no NaN, no lone surrogate; must not know what the documents mean."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from typing import Any

import orjson

MAX_DEPTH = 100
"""Levels of nesting that we read: deeper documents would exhaust the stack of whoever walks them (RFC 8259 §9)."""

_LINE = orjson.OPT_APPEND_NEWLINE | orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME
"""orjson writes NaN as null and refuses lone surrogates and big integers, which the slow way then cleans or writes."""

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def clean(value: Any) -> Any:
    """``value`` with NaN and infinities as ``None`` and lone surrogates as U+FFFD, so that any JSON parser reads it."""
    if isinstance(value, str):
        return _LONE_SURROGATE.sub("\ufffd", value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {clean(str(key)): clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [clean(item) for item in value]
    return value


def dumps(value: Any) -> bytes:
    """UTF-8 JSON, indented by two spaces, ending in a line break: the form of every file we write."""
    try:
        return orjson.dumps(value, option=_LINE | orjson.OPT_INDENT_2)
    except TypeError:
        text = json.dumps(clean(value), ensure_ascii=False, allow_nan=False, indent=2)
        return text.encode() + b"\n"


def line(value: Any) -> bytes:
    """One JSON line for an appended journal."""
    try:
        return orjson.dumps(value, option=_LINE)
    except TypeError:
        return json.dumps(clean(value), ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def canonical(value: Any) -> bytes:
    """Sorted keys, no white space: equal documents give equal bytes."""
    return json.dumps(clean(value), ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")).encode()


def digest(value: Any) -> str:
    """64 hex digits: sha256 of the canonical form."""
    return hashlib.sha256(canonical(value)).hexdigest()


class NotStrictError(ValueError):
    """JSON that Python reads and RFC 8259 (or good sense) does not; ``zh``: the same for a team member."""

    def __init__(self, en: str, zh: str) -> None:
        super().__init__(en)
        self.zh = zh


def json_cause(error: ValueError | RecursionError) -> str:
    """Why a text is no JSON, in Chinese: for a sentence that a team member reads."""
    if isinstance(error, json.JSONDecodeError):
        return f"第 {error.lineno} 行第 {error.colno} 列有语法错误"
    if isinstance(error, UnicodeDecodeError):
        return f"第 {error.start + 1} 个字节不是 UTF-8 编码"
    return error.zh if isinstance(error, NotStrictError) else "结构有误"


def loads(data: bytes | str) -> Any:
    """Strict reading of one document; a UTF-8 byte order mark is tolerated.

    Raises ``ValueError`` (its text says line and column) for bad JSON, NaN, bad UTF-8 and more than 100 levels.
    """
    text = data.decode("utf-8-sig") if isinstance(data, bytes) else data.removeprefix("\ufeff")
    try:
        found = json.loads(text, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise _too_deep() from error
    # without as many brackets it cannot be: most documents of a job need no walk
    if text.count("[") + text.count("{") > MAX_DEPTH and is_too_deep(found):
        raise _too_deep()
    return found


TOO_DEEP = f"nested deeper than {MAX_DEPTH} levels"


def is_too_deep(value: Any) -> bool:
    """Whether a document has more than 100 levels; walks level by level, never by recursion."""
    level = _containers([value])
    for _ in range(MAX_DEPTH):
        if not level:
            return False
        level = [inner for outer in level for inner in _containers(_inside(outer))]
    return bool(level)


def _containers(values: list[Any]) -> list[Any]:
    return [value for value in values if isinstance(value, dict | list)]


def _inside(outer: dict[str, Any] | list[Any]) -> list[Any]:
    return list(outer.values()) if isinstance(outer, dict) else outer


def _refuse_constant(name: str) -> Any:
    raise NotStrictError(f"{name} is not JSON (RFC 8259)", f"{name} 不是合法的 JSON 数值")


def _too_deep() -> NotStrictError:
    return NotStrictError(TOO_DEEP, f"嵌套超过 {MAX_DEPTH} 层")


def double_name(data: bytes) -> str:
    """The first field that one object holds twice with different values, ``""`` without one; ``data`` is JSON.

    Which of the two counts is up to each reader (RFC 8259 §4), so a sender and we may have different ones in mind.
    """
    double: list[str] = []

    def keep(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, value in pairs:
            if name in found and found[name] != value:
                double.append(name)
            found[name] = value
        return found

    json.loads(data.decode("utf-8-sig"), object_pairs_hook=keep)
    return double[0] if double else ""
