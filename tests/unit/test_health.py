"""Live means that work is consumed; ready means that it could be."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tasks.ports import OpenJob
from worker.health import Check, available, consumed, of_class

NOW, PATIENCE = 1_000.0, 60.0
QUEUES = {"prepare": "kbw.io", "select": "kbw.llm"}
READY_LONG = OpenJob("select", "queued", "", created=0.0, ready_at=NOW - 61, lease_until=0.0)


def live(*jobs: OpenJob, claims: dict[str, float] | None = None, paused: tuple[str, ...] = ()) -> bool:
    fine, facts = consumed(jobs, claims or {}, paused, QUEUES, now=NOW, patience_s=PATIENCE)
    assert facts["live"] == fine
    assert bool(facts["reason"]) != fine
    return fine


def test_a_job_that_nobody_takes_is_no_life() -> None:
    assert not live(READY_LONG)
    assert not live(READY_LONG, claims={"kbw.llm": NOW - 61, "kbw.io": NOW})


def test_the_reason_names_the_class_of_workers_that_is_missing() -> None:
    _, facts = consumed([READY_LONG], {}, (), QUEUES, now=NOW, patience_s=PATIENCE)
    assert facts["reason"] == "nobody takes jobs of class llm"
    assert not facts["classes"]["io"]["stuck"]


@pytest.mark.parametrize(
    "excuse",
    [
        {"ready_at": NOW - 59},
        {"blocked": "cap"},
        {"blocked": "breaker"},
        {"blocked": "order"},
        {"blocked": "paused"},
        {"state": "parked", "ready_at": NOW + 30},
    ],
)
def test_a_job_that_waits_for_a_reason_is_no_sign_of_death(excuse: dict[str, Any]) -> None:
    assert live(replace(READY_LONG, **excuse))


def test_a_wait_that_is_over_and_was_not_ended_by_anybody_is_one() -> None:
    assert not live(replace(READY_LONG, state="parked"))


def test_claims_of_the_queue_work_under_a_live_lease_and_a_pause_count_as_life() -> None:
    assert live(READY_LONG, claims={"kbw.llm": NOW - 1})
    assert live(READY_LONG, replace(READY_LONG, state="running", lease_until=NOW + 10))
    assert live(READY_LONG, paused=("queue:kbw.llm",))
    assert not live(READY_LONG, replace(READY_LONG, state="running", lease_until=NOW - 1))
    assert not live(READY_LONG, paused=("queue:kbw.io",))


def test_nothing_to_do_is_fine() -> None:
    assert live()


def test_ready_says_what_is_missing() -> None:
    def gone() -> None:
        raise OSError("share unmounted")

    fine, facts = available([Check("redis", lambda: None), Check("shared", gone)])
    assert not fine
    assert facts == {
        "ready": False,
        "reason": "shared: share unmounted",
        "checks": {"redis": "ok", "shared": "share unmounted"},
    }
    assert available([Check("redis", lambda: None)])[0]


def test_one_class_can_be_asked_about_alone() -> None:
    probe = consumed([READY_LONG], {}, (), QUEUES, now=NOW, patience_s=PATIENCE)

    assert of_class(probe, "io")[0]
    fine, facts = of_class(probe, "llm")
    assert not fine
    assert facts["reason"] == "nobody takes jobs of class llm"
    assert set(facts["classes"]) == {"llm"}


def test_a_record_out_of_reach_is_no_reason_to_restart_any_class() -> None:
    unknown = (True, {"live": True, "reason": "unknown: no answer"})

    assert of_class(unknown, "llm") == unknown
