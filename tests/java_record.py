"""The result's JSON Schema as Java records: what the READMEs show and a backend may copy.

``python -m tests.java_record`` prints it.
"""

from __future__ import annotations

from typing import Any

from worker.ops.schema import schema_of

PLAIN = {"boolean": "boolean", "integer": "long", "string": "String"}
BOXED = {"boolean": "Boolean", "integer": "Long", "string": "String"}
NAMES = {"AnswerSource": "Source", "SourceTrace": "Trace", "UsedAttachment": "Attachment"}


def java_of(schema: dict[str, Any], name: str) -> str:
    """One record with the records it needs inside; every field is always present."""
    inner = [_record(NAMES[key], shape, "    ") + " {}" for key, shape in schema["$defs"].items()]
    body = "\n\n".join(inner)
    head = "import java.util.List;\nimport java.util.Map;\n\n"
    return f"{head}public {_record(name, schema, '')} {{\n\n{body}\n}}\n"


def _record(name: str, shape: dict[str, Any], indent: str) -> str:
    fields = [f"{_type(field, PLAIN)} {key}" for key, field in shape["properties"].items()]
    lines, line = [], ""
    for field in fields:
        if len(indent) + len(line) + len(field) > 104:
            lines.append(line.rstrip())
            line = ""
        line += f"{field}, "
    lines.append(line.rstrip(", "))
    visible = "public " if indent else ""  # a mapper in another package has to see them
    return f"{indent}{visible}record {name}(\n" + "\n".join(f"{indent}        {line}" for line in lines) + ")"


def _type(field: dict[str, Any], names: dict[str, str]) -> str:
    if "anyOf" in field:  # a number or a text
        return "Object"
    if "$ref" in field:
        return NAMES[field["$ref"].rsplit("/", 1)[-1]]
    if field["type"] == "array":
        return f"List<{_type(field['items'], BOXED)}>"
    if field["type"] == "object":
        values = field.get("additionalProperties")
        return f"Map<String, {_type(values, BOXED) if isinstance(values, dict) else 'Object'}>"
    return names[field["type"]]


def result_record() -> str:
    """``KbQueryResult.java``."""
    return java_of(schema_of("result"), "KbQueryResult")


if __name__ == "__main__":
    print(result_record(), end="")
