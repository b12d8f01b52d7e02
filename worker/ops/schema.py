"""``kbw schema NAME``: the JSON Schemas that other teams generate classes from."""

from __future__ import annotations

import json
from typing import Any

import click

from tasks.contract.answer import Answer
from tasks.contract.context import Context
from tasks.contract.evidence import Evidence
from tasks.contract.material import MaterialRequest, MaterialResult
from tasks.contract.outcome import Outcome, Receipt
from tasks.contract.payload import Payload
from tasks.contract.result import Result
from tasks.contract.selection import PageSelection
from tasks.contract.shape import JsonObject, Shape
from tasks.knowledge.spec import json_schema as knowledge_schema

SHAPES: dict[str, type[Shape]] = {
    "payload": Payload,
    "context": Context,
    "selection": PageSelection,
    "evidence": Evidence,
    "answer": Answer,
    "outcome": Outcome,
    "receipt": Receipt,
    "result": Result,
    "material": MaterialRequest,
    "material-result": MaterialResult,
}
NAMES = (*SHAPES, "knowledge")
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
WRITTEN_BY_US = {"context", "evidence", "outcome", "receipt", "result", "material-result"}
"""In these all fields are always present, so the schema requires them (a generated class needs no null checks)."""
SENT_TO_US = {"payload", "material"}
"""In these ``null`` in an optional field means "not given" (CONTRACT §2); a generated class writes it for one unset."""


def schema_of(name: str) -> JsonObject:
    """The JSON Schema (2020-12) of one shape."""
    mode = "serialization" if name in WRITTEN_BY_US else "validation"
    if name == "knowledge":
        return {"$schema": _DIALECT, "$id": "kbw/knowledge", **knowledge_schema()}
    schema = _typed(SHAPES[name].model_json_schema(by_alias=True, mode=mode))  # type: ignore[arg-type]  # two literals
    if name in SENT_TO_US:
        _allow_nulls(schema)
    return {"$schema": _DIALECT, "$id": f"kbw/{name}", **schema}


def _typed(node: Any) -> Any:
    """``anyOf`` of a plain type and null as one ``type`` of both: of ``anyOf`` generators make an untyped field."""
    if isinstance(node, list):
        return [_typed(item) for item in node]
    if not isinstance(node, dict):
        return node
    found = {key: _typed(value) for key, value in node.items()}
    match found.get("anyOf"):
        case [{"type": str(kind), **more}, {"type": "null"}]:
            del found["anyOf"]
            return {**found, **more, "type": [kind, "null"]}
    return found


def _allow_nulls(schema: dict[str, Any]) -> None:
    """Let every optional field be null, as the reader does; an object that a field refers to says so itself."""
    defined = schema.get("$defs", {})
    for shape in (schema, *defined.values()):
        for name, field in shape.get("properties", {}).items():
            target = defined[field["$ref"].rsplit("/", 1)[-1]] if "$ref" in field else field
            if name not in shape.get("required", ()) and isinstance(target.get("type"), str):
                target["type"] = [target["type"], "null"]


def print_schema(name: str | None) -> int:
    """Print it; without a name, the names."""
    if name is None:
        click.echo("\n".join(NAMES))
        return 0
    if name not in NAMES:
        click.echo(f"kbw: no schema {name!r}; there are: {', '.join(NAMES)}", err=True)
        return 2
    click.echo(json.dumps(schema_of(name), ensure_ascii=False, indent=2))
    return 0
