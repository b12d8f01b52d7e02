"""``kbw schema NAME``: the JSON Schemas that other teams generate classes from."""

from __future__ import annotations

import json

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


def schema_of(name: str) -> JsonObject:
    """The JSON Schema (2020-12) of one shape."""
    mode = "serialization" if name in WRITTEN_BY_US else "validation"
    if name == "knowledge":
        return {"$schema": _DIALECT, "$id": "kbw/knowledge", **knowledge_schema()}
    schema = SHAPES[name].model_json_schema(by_alias=True, mode=mode)  # type: ignore[arg-type]  # two literals
    return {"$schema": _DIALECT, "$id": f"kbw/{name}", **schema}


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
