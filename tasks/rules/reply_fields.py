"""Fixed tables that turn a field of a model reply into the contract's type; each change is noted, none is silent."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from tasks.contract import strict_json
from tasks.contract.shape import Note, Scalar, Shape
from tasks.rules import reply_fault as fault
from tasks.rules.reply_text import MAX_DEPTH

MAX_NOTES = 100
_MAX_FIELD = 200

_TRUE = frozenset({"true", "yes", "y", "1", "1.0", "是", "是的", "对", "有", "真", "需要", "充分", "足够"})
_FALSE = frozenset(
    {
        "false",
        "no",
        "n",
        "0",
        "0.0",
        "",
        "none",
        "null",
        "否",
        "不",
        "不是",
        "没有",
        "无",
        "假",
        "不需要",
        "不足",
        "不充分",
    }
)


class Fields:
    """Reads the fields of one reply and collects a note for everything that had to be changed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.notes: list[Note] = []

    def note(self, code: str, field: str, message: str) -> None:
        """Something was changed; at most 100 notes a reply are kept."""
        if len(self.notes) < MAX_NOTES:
            self.notes.append(Note(code=code, field=field, message=message))

    def json_value(self, value: Any, field: str = "", depth: int = 0) -> Any:
        """``value`` as any JSON parser reads it: NaN and infinities are null, lone surrogates U+FFFD."""
        if depth > MAX_DEPTH:
            raise fault.too_deep(self.name, MAX_DEPTH)
        if isinstance(value, dict):
            return {
                self.json_value(key, field, depth + 1): self.json_value(
                    item, f"{field}.{key}".lstrip(".")[:_MAX_FIELD], depth + 1
                )
                for key, item in value.items()
            }
        if isinstance(value, list):
            return [self.json_value(item, f"{field}[{at}]", depth + 1) for at, item in enumerate(value)]
        cleaned = strict_json.clean(value)
        if cleaned is not value and cleaned != value:
            code, message = (
                ("LONE_SURROGATE", "不成对的代理字符已替换为 U+FFFD")
                if isinstance(value, str)
                else ("NOT_FINITE", "NaN 或无穷大已改为 null")
            )
            self.note(code, strict_json.clean(field), message)
        return cleaned

    def known_keys(self, value: Mapping[str, Any], shape: type[Shape], field: str) -> dict[str, Any]:
        """``value`` with snake_case names of ``shape`` as the contract writes them."""
        found = dict(value)
        for name, info in shape.model_fields.items():
            alias = info.alias or name
            if name != alias and name in found and alias not in found:
                found[alias] = found.pop(name)
                self.note("FIELD_RENAMED", f"{field}.{alias}".lstrip("."), f"字段名 {name} 按 {alias} 读取")
        return found

    def text(self, value: Any, field: str) -> str:
        """Text; null is empty, numbers are written out, anything else becomes its JSON."""
        if isinstance(value, str):
            return value
        self.note("TYPE_NORMALIZED", field, f"{_kind(value)} 已按文本处理")
        return "" if value is None else json.dumps(value, ensure_ascii=False)

    def flag(self, value: Any, field: str) -> bool | None:
        """A boolean by the tables; ``None`` (noted by the caller) when the value means neither."""
        if isinstance(value, bool):
            return value
        meant: bool | None = None
        if value is None:
            meant = False
        elif isinstance(value, int | float):
            meant = {0.0: False, 1.0: True}.get(value)
        elif isinstance(value, str):
            word = value.strip().lower()
            meant = True if word in _TRUE else False if word in _FALSE else None
        if meant is not None:
            self.note("TYPE_NORMALIZED", field, f"{_kind(value)} 已按 {str(meant).lower()} 处理")
        return meant

    def flag_or(self, value: Any, field: str, *, default: bool) -> bool:
        """A boolean that no answer should fail for: unclear values count as ``default``, the cautious side."""
        meant = self.flag(value, field)
        if meant is None:
            self.note("TYPE_NORMALIZED", field, f"无法判断真假，按 {str(default).lower()} 处理")
            return default
        return meant

    def score(self, value: Any, field: str) -> int:
        """0 or 1; what is neither counts 0, so that a score can never be talked up."""
        if isinstance(value, int) and not isinstance(value, bool) and value in (0, 1):
            return value
        number = self._number(value)
        if number in (0, 1):
            self.note("TYPE_NORMALIZED", field, f"{_kind(value)} 已按 {int(number)} 处理")
            return int(number)
        self.note("SCORE_OUT_OF_RANGE", field, "评分只能是 0 或 1，按 0 处理")
        return 0

    def _number(self, value: Any) -> float:
        if isinstance(value, str):
            word = value.strip().lower()
            if word in _TRUE or word in _FALSE:
                return float(word in _TRUE)
        try:
            return float(value) if value is not None else math.nan
        except (TypeError, ValueError, OverflowError):
            return math.nan

    def items(self, value: Any, field: str) -> list[Any]:
        """A list; null is empty, a single value is a list of one."""
        if isinstance(value, list):
            return value
        self.note("TYPE_NORMALIZED", field, f"{_kind(value)} 已按列表处理")
        return [] if value is None or value == "" else [value]

    def texts(self, value: Any, field: str) -> tuple[str, ...]:
        """A list of texts without blank ones."""
        found = [self.text(item, f"{field}[{at}]") for at, item in enumerate(self.items(value, field))]
        return tuple(item for item in found if item.strip())

    def ids(self, value: Any, field: str) -> tuple[Scalar, ...]:
        """A list of ids, each a number or a text; others are left out."""
        items = self.items(value, field)
        found = tuple(item for item in items if is_scalar(item))
        if len(found) < len(items):
            self.note("DROPPED", field, "既不是数字也不是文本的编号已略去")
        return found


def is_scalar(value: object) -> bool:
    """Whether ``value`` is an id as other systems write it: a number or a text, not a boolean."""
    return isinstance(value, int | str) and not isinstance(value, bool)


def _kind(value: object) -> str:
    return "null" if value is None else f"{type(value).__name__} 类型"
