"""The base of all border shapes: frozen, camelCase outside, snake_case inside, tolerant of fields it does not know."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

Scalar = int | str
"""An id as other systems write it: a number or a text."""

JsonObject = dict[str, object]


class Shape(BaseModel):
    """A frozen border shape. Unknown fields are dropped: old and new workers read each other's artefacts."""

    model_config = ConfigDict(
        frozen=True,
        alias_generator=to_camel,
        populate_by_name=True,
        extra="ignore",
        coerce_numbers_to_str=True,
        json_schema_serialization_defaults_required=True,  # what we write holds all its fields
        defer_build=True,  # a command that reads no document does not pay for its shape
    )

    def document(self) -> JsonObject:
        """The shape as a JSON-ready object with the contract's field names, all fields present."""
        return self.model_dump(mode="json", by_alias=True)


class OpenShape(Shape):
    """A shape that other systems extend: fields we do not know are kept and passed through."""

    model_config = ConfigDict(extra="allow")


class Note(Shape):
    """One entry of ``warnings[]``: something was odd, was treated in a stated way, and the job went on."""

    code: str
    path: str | None = None
    field: str | None = None
    message: str
