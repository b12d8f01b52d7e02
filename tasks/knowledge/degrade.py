"""What follows a search that gave no cards (seed 000 §二): a table as data; must not search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from tasks.knowledge.found import Status

NOT_MOUNTED = "NOT_MOUNTED"
"""No WeKnora is configured here: not a status of a search, but a row of the matrix."""

ROWS = (NOT_MOUNTED, *Status)
OnZero = Literal["guidance", "local_md"]


class Step(StrEnum):
    """What is done next for a node."""

    USE = "use"
    LOCAL_MD = "local_md"
    GUIDANCE = "guidance"
    OFF = "feature_off"  # a bare `off` is a boolean in YAML


@dataclass(frozen=True)
class DegradeMatrix:
    """The whole table: every row has a step; the row of zero hits is a setting (``on_zero``)."""

    steps: Mapping[str, Step]
    on_zero: OnZero = "guidance"

    def after(self, status: str) -> Step:
        """What follows a search in WeKnora."""
        return self.steps[status]

    def after_local(self, status: Status) -> Step:
        """What follows a search in the local files: there is no other place to look."""
        if status is Status.HIT:
            return Step.USE
        return Step.GUIDANCE if status is Status.ZERO_HIT else Step.OFF


def read_matrix(document: object, on_zero: OnZero = "guidance") -> DegradeMatrix:
    """The matrix out of ``config/material.yaml``. Raises ``ValueError`` that names the row."""
    if not isinstance(document, Mapping):
        raise ValueError("degrade: needs a mapping of statuses")  # a fault of the file, not of a type
    unknown = sorted(set(map(str, document)) - set(ROWS))
    if unknown:
        raise ValueError(f"degrade: no such status: {', '.join(unknown)}")
    steps = {}
    for row in ROWS:
        named = document.get(str(row))
        allowed = ("on_zero",) if row == Status.ZERO_HIT else ()
        if named not in (*Step, *allowed):
            raise ValueError(f"degrade: {row}: needs one of {', '.join((*Step, *allowed))}")
        steps[str(row)] = Step(on_zero if named == "on_zero" else str(named))
    return DegradeMatrix(steps, on_zero)
