"""The degrade matrix as it is shipped, row by row, and what a broken table is told."""

from __future__ import annotations

import pytest

from tasks.knowledge.degrade import NOT_MOUNTED, ROWS, Step, read_matrix
from tasks.knowledge.found import Status
from tests.fakes_material import rules

SHIPPED = {
    Status.HIT: Step.USE,
    Status.ZERO_HIT: Step.GUIDANCE,
    NOT_MOUNTED: Step.LOCAL_MD,
    Status.UNAVAILABLE: Step.LOCAL_MD,
    Status.TIMEOUT: Step.LOCAL_MD,
    Status.UNAUTHORIZED: Step.LOCAL_MD,
    Status.MISCONFIGURED: Step.LOCAL_MD,
    Status.BAD_RESPONSE: Step.LOCAL_MD,
    Status.KB_NOT_FOUND: Step.OFF,
}


def test_every_status_has_its_row() -> None:
    assert set(SHIPPED) == set(ROWS)


@pytest.mark.parametrize(("status", "step"), SHIPPED.items())
def test_the_shipped_matrix(status: str, step: Step) -> None:
    assert rules().matrix.after(status) is step


def test_zero_hits_follow_the_setting() -> None:
    assert rules("local_md").matrix.after(Status.ZERO_HIT) is Step.LOCAL_MD


@pytest.mark.parametrize(
    ("status", "step"),
    [(Status.HIT, Step.USE), (Status.ZERO_HIT, Step.GUIDANCE), (Status.UNAVAILABLE, Step.OFF)],
)
def test_after_the_local_files_there_is_no_other_place(status: Status, step: Step) -> None:
    assert rules().matrix.after_local(status) is step


GOOD = {str(row): "local_md" for row in ROWS}


@pytest.mark.parametrize(
    ("document", "part"),
    [
        (None, "mapping"),
        ({**GOOD, "LOST": "use"}, "LOST"),
        ({**GOOD, "TIMEOUT": "retry"}, "TIMEOUT"),
        ({**GOOD, "TIMEOUT": "on_zero"}, "TIMEOUT"),
        ({"HIT": "use"}, "NOT_MOUNTED"),
    ],
)
def test_a_broken_table_names_its_row(document: object, part: str) -> None:
    with pytest.raises(ValueError, match=part):
        read_matrix(document)
