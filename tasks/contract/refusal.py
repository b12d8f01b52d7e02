"""Says what is wrong with a document in the words of its reader; must never repeat a value, which may be private."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

MAX_FIELDS = 10

_KINDS = {
    "NoneType": ("null", " null"),
    "bool": ("boolean", "布尔值"),
    "int": ("number", "数字"),
    "float": ("number", "数字"),
    "str": ("text", "文本"),
    "dict": ("object", "对象"),
    "list": ("array", "数组"),
    "tuple": ("array", "数组"),
}

_ALLOWED = {
    "missing": ("required", "必填"),
    "string_type": ("must be text", "应为文本"),
    "int_type": ("must be a whole number", "应为整数"),
    "int_parsing": ("must be a whole number", "应为整数"),
    "int_from_float": ("must be a whole number", "应为整数"),
    "float_type": ("must be a number", "应为数字"),
    "float_parsing": ("must be a number", "应为数字"),
    "finite_number": ("must be a finite number", "应为有限的数字"),
    "bool_type": ("must be true or false", "应为 true 或 false"),
    "bool_parsing": ("must be true or false", "应为 true 或 false"),
    "tuple_type": ("must be an array", "应为数组"),
    "list_type": ("must be an array", "应为数组"),
    "dict_type": ("must be an object", "应为对象"),
    "model_type": ("must be an object", "应为对象"),
    "model_attributes_type": ("must be an object", "应为对象"),
    "greater_than_equal": ("must be at least {ge:g}", "不能小于 {ge:g}"),
    "less_than_equal": ("must be at most {le:g}", "不能大于 {le:g}"),
    "too_short": ("must have at least {min_length}", "至少要有 {min_length} 项"),
    "too_long": ("must not be longer than {max_length}", "长度不能超过 {max_length}"),
    "string_too_long": ("must not be longer than {max_length}", "长度不能超过 {max_length}"),
    "literal_error": ("must be {expected}", "只能是 {expected}"),
    "enum": ("must be {expected}", "只能是 {expected}"),
}
"""Pydantic speaks of tuples and dictionaries and only English; https://docs.pydantic.dev/latest/errors/validation_errors/."""


class NotAllowedError(ValueError):
    """A rule of ours refuses a value. ``field``: the field's name when the rule looks at a whole object."""

    def __init__(self, en: str, zh: str, *, field: str = "") -> None:
        super().__init__(en)
        self.en = en
        self.zh = zh
        self.field = field


def kind_of(value: object) -> tuple[str, str]:
    """The JSON kind of a value, in English and Chinese."""
    name = type(value).__name__
    return _KINDS.get(name, (name, name))


def describe(error: ValidationError) -> tuple[str, str]:
    """An English and a Chinese line that name each bad field, the kind of its value and what is allowed."""
    items = _without_echoes([dict(item) for item in error.errors(include_url=False)])
    parts = list(dict.fromkeys(_told(item) for item in items))[:MAX_FIELDS]
    return "; ".join(en for en, _ in parts), "；".join(zh for _, zh in parts)


def _without_echoes(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """An array whose entries were refused counts as empty: its being too short is no second fault."""

    def echoes(item: dict[str, Any]) -> bool:
        path = item["loc"]
        return item["type"] == "too_short" and any(o["loc"][: len(path)] == path != o["loc"] for o in items)

    return [item for item in items if not echoes(item)]


def _told(item: dict[str, Any]) -> tuple[str, str]:
    context = item.get("ctx") or {}
    rule = context.get("error")
    number_or_text = item["loc"][-1:] in (("int",), ("str",))  # one complaint for each branch of an id's union
    field = ".".join(str(step) for step in (item["loc"][:-1] if number_or_text else item["loc"]))
    if isinstance(rule, NotAllowedError):
        field = ".".join(filter(None, (field, rule.field)))
        en, zh = rule.en, rule.zh
    elif number_or_text:
        en, zh = "must be a number or text", "应为数字或文本"
    elif item["type"] in _ALLOWED:
        en, zh = (text.format(**context) for text in _ALLOWED[item["type"]])
    else:
        en, zh = item["msg"], "格式不正确"
    if item["type"] == "missing":
        return f"{field} (missing): {en}", f"缺少必填字段 {field}"
    value = item["input"]
    if isinstance(rule, NotAllowedError) and rule.field:  # the whole object was looked at: its own kind tells nothing
        if rule.field not in value:
            return f"{field} (missing): {en}", f"缺少必填字段 {field}"
        value = value[rule.field]
    found_en, found_zh = kind_of(value)
    return f"{field or 'document'} ({found_en}): {en}", f"字段 {field or '（整个文档）'}（收到{found_zh}）：{zh}"
