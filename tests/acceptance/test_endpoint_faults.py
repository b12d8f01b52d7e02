"""A model endpoint that is slow, refuses or hangs: the cap holds fleet-wide, the breaker opens, nothing fails."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.acceptance.staff import Staff, staffed
from tests.acceptance.system import API_KEY, PATIENCE_S, wait_for
from tests.model_shapes import Reply, Request, hanging, internal_error, rate_limited
from tests.scripted_model import ScriptedModel, answer_from_pages

pytestmark = pytest.mark.acceptance
CAP = 3
TIMEOUT_S = 4.0
SETTINGS = {"KBW_MODEL_CONCURRENCY": str(CAP), "KBW_LEASE_S": "10"}


@pytest.fixture(scope="module")
def company(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Staff]:
    with staffed(tmp_path_factory.mktemp("endpoint"), **SETTINGS) as found:
        yield found


@pytest.fixture
def staff(company: Staff) -> Staff:
    """Two workers for the model with four threads each: more than the cap."""
    company.complete()
    company.hire("llm-second", 4)
    return company


class Counted:
    """A willing model that counts its calls in flight until their reply goes out.

    The server's own count holds hung ones that nobody waits for, and those whose client has its reply already.
    The first calls wait for each other, until ``expected`` are there.
    """

    def __init__(self, lasting_s: float, *, expected: int = 1) -> None:
        self.now = self.most = self.calls = 0
        self._lasting_s, self._expected = lasting_s, expected
        self._together = threading.Event()
        self._lock = threading.Lock()
        self._willing = answer_from_pages()

    def __call__(self, request: Request) -> Reply:
        with self._lock:
            self.calls += 1
            self.now += 1
            self.most = max(self.most, self.now)
            if self.now >= self._expected:
                self._together.set()
        self._together.wait(PATIENCE_S)
        time.sleep(self._lasting_s)
        with self._lock:
            self.now -= 1
        return self._willing(request)


def replace(staff: Staff, by: str, **changes: str) -> None:
    """Other workers for the model, as many as before."""
    for name in [name for name in staff.workers if name.startswith("llm")]:
        staff.dismiss(name)
    for number in range(2):
        staff.hire(f"llm-{by}{number}", 4, **changes)


def hand_in(staff: Staff, name: str, number: int, **changes: Any) -> list[str]:
    payloads = [staff.system.payload(f"{name}{n}", **changes) for n in range(number)]
    for payload in payloads:
        staff.system.drop(payload)
    return [payload["taskId"] for payload in payloads]


def breaker_is_open(staff: Staff, endpoint: str) -> bool:
    with staff.redis() as client:
        until = client.hget(f"kbw:breaker:{endpoint}", "open_until")
        return until is not None and float(until) > client.time()[0]


def openings(staff: Staff) -> int:
    """How often breakers opened without a success since."""
    with staff.redis() as client:
        return sum(int(client.hget(f"kbw:breaker:{name}", "opens") or 0) for name in endpoints(staff))


def under_way(staff: Staff) -> int:
    """Calls that have a slot."""
    with staff.redis() as client:
        return sum(client.zcard(key) for key in client.scan_iter("kbw:slots:*"))


def endpoints(staff: Staff) -> set[str]:
    with staff.redis() as client:
        return client.smembers("kbw:endpoints")


def test_two_workers_with_eight_threads_never_call_more_than_the_cap_at_once(staff: Staff) -> None:
    model = Counted(0.3, expected=CAP)
    staff.system.model.rule = model
    task_ids = hand_in(staff, "cap", 12)
    results = staff.system.results(task_ids)
    assert all(result["success"] for result in results.values())
    assert model.most == CAP
    assert model.calls == 2 * len(task_ids), "who found no slot waited and did not call"


def test_an_endpoint_that_refuses_or_hangs_parks_its_jobs_until_it_is_well_again(staff: Staff) -> None:
    replace(staff, "hasty", KBW_MODEL_TIMEOUT_S=str(TIMEOUT_S))
    sick = itertools.cycle([rate_limited(), internal_error(), hanging()])
    calls: list[tuple[float, float]] = []
    lock = threading.Lock()

    def rule(_request: Request) -> Reply:
        with lock:
            reply, now = next(sick), time.monotonic()
            # a refusal is over at once; a client waited a little before its call was noted here
            calls.append((now, now + (TIMEOUT_S / 2 if reply.hang else 0.0)))
            return reply

    staff.system.model.rule = rule
    task_ids = hand_in(staff, "sick", 12)
    wait_for(lambda: any(breaker_is_open(staff, name) for name in endpoints(staff)), PATIENCE_S, staff.system.tail)
    wait_for(lambda: under_way(staff) == 0, PATIENCE_S, staff.system.tail)
    opened, asked = openings(staff), len(calls)

    # deterministic stages go on: all jobs get to the model's door, and one that needs no model gets its result
    (unknown,) = hand_in(staff, "unknown", 1, skill="dance")
    assert staff.system.results([unknown])[unknown]["errorCode"] == "UNKNOWN_SKILL"
    prepared = {"event": "checkpoint", "stage": "prepare"}.items()
    wait_for(
        lambda: all(any(prepared <= e.items() for e in staff.system.events(t)) for t in task_ids),
        PATIENCE_S,
        staff.system.tail,
    )
    assert len(calls) <= asked + 1 + openings(staff) - opened, "while the breaker is open at most its one probe calls"
    assert not any(staff.system.result(task_id) for task_id in task_ids), "waiting is no failure"
    assert busiest(calls) <= CAP

    replace(staff, "patient")  # a client that gives up while its call is still counted would be one too many
    healed = Counted(0.1)
    staff.system.model.rule = healed
    results = staff.system.results(task_ids)
    assert all(result["success"] for result in results.values()), results
    assert 1 <= healed.most <= CAP
    assert all(len(staff.system.commits_of(task_id)) == 1 for task_id in task_ids)


def test_jobs_of_another_endpoint_go_on_while_a_breaker_is_open(staff: Staff) -> None:
    staff.system.model.rule = lambda _request: internal_error()
    waiting = hand_in(staff, "shut", 6)
    wait_for(lambda: any(breaker_is_open(staff, name) for name in endpoints(staff)), PATIENCE_S, staff.system.tail)
    for name in ("llm", "llm-second"):
        staff.dismiss(name)
    with ScriptedModel(answer_from_pages(), token=API_KEY) as other:
        staff.hire("llm-other", 4, KBW_LLM_BASE_URL=other.base_url)
        through = hand_in(staff, "open", 4)
        results = staff.system.results(through)
        assert all(result["success"] for result in results.values())
        assert len(other.requests) >= 2 * len(through)
        staff.dismiss("llm-other")
    staff.complete()
    assert all(result["success"] for result in staff.system.results(waiting).values())


def busiest(calls: list[tuple[float, float]]) -> int:
    """The most calls at one moment; one that hangs lasts until its client gives up."""
    return max((sum(1 for start, end in calls if start <= moment <= end) for moment, _ in calls), default=0)
