"""JSON Schemas for ``response_format``, out of the contract's models; must not be trusted: replies are read leniently.

Strict-mode friendly (every field required, none added, no ``$ref``, no defaults) and small: what the program fills in
itself (page facts, source traces) is not asked for.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from tasks.contract.answer import Answer
from tasks.contract.selection import PageSelection
from tasks.contract.shape import JsonObject, Shape

_OURS = frozenset({"readLevel", "warnings", "sourceIds", "sourceTraces"})
_KEPT = ("type", "enum", "items", "anyOf", "properties", "required", "additionalProperties")


@cache
def selection_schema() -> JsonObject:
    """The shape of ``page-selection.json`` as a model has to write it."""
    return _strict_schema(PageSelection)


@cache
def answer_schema() -> JsonObject:
    """The shape of ``answer.json`` as a model has to write it."""
    return _strict_schema(Answer)


def _strict_schema(shape: type[Shape]) -> JsonObject:
    whole = shape.model_json_schema(by_alias=True)
    return _strict(whole, whole.get("$defs", {}))


def _strict(node: dict[str, Any], shapes: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in node:
        return _strict(shapes[node["$ref"].rsplit("/", 1)[-1]], shapes)
    options = [option for option in node.get("anyOf", []) if option.get("type") != "null"]
    if len(options) == 1:
        return _strict(options[0], shapes)
    found = {key: value for key, value in node.items() if key in _KEPT}
    if node.get("type") == "integer" and (node.get("minimum"), node.get("maximum")) == (0, 1):
        found["enum"] = [0, 1]
    if options:
        found["anyOf"] = [_strict(option, shapes) for option in options]
    if "items" in node:
        found["items"] = _strict(node["items"], shapes)
    if "properties" in node:
        fields = {key: _strict(value, shapes) for key, value in node["properties"].items() if key not in _OURS}
        found |= {"properties": fields, "required": list(fields), "additionalProperties": False}
    return found
