"""One trace from the sender through every attempt to the result; a job without one begins its own."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tasks.contract.result import Result
from tasks.contract.trace import fresh_traceparent, given_by_sender, is_fresh, read_traceparent, trace_of
from tasks.errors import Code, PermanentError, TransientError
from tasks.registry import pipeline_of
from tests.fakes import FailingAt, World, payload
from tests.fakes_job_store import FakeJobRecords
from worker.adapters.publish.result_stream import result_fields
from worker.ops.desk import Desk
from worker.ops.replay import ReplayOrder, replay
from worker.upkeep import Upkeep, recover

TASK = "query-c1-m1"
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
MALFORMED = [
    "", "x", 7, None, [TRACE], f" {TRACE}", TRACE.upper(), TRACE[:-1], f"{TRACE}-more", f"ff{TRACE[2:]}",
    f"00-{'0' * 32}-b7ad6b7169203331-01", f"00-{'a' * 32}-{'0' * 16}-01",
]  # fmt: skip


def journal(world: World) -> list[dict[str, Any]]:
    return [json.loads(line) for line in world.folder(TASK).files["events.jsonl"].splitlines()]


def desk_of(world: World) -> Desk:
    return Desk(world.records, world.ports, world.wake, "operator:ann@desk")


def test_the_payloads_trace_stands_in_record_journal_model_calls_and_result() -> None:
    world = World()
    world.accept(payload(traceparent=TRACE))
    world.settle()

    assert world.record(TASK).traceparent == TRACE
    assert {line["traceparent"] for line in journal(world)} == {TRACE}
    assert {call.traceparent for call in world.model.calls} == {TRACE}
    assert world.result(TASK)["traceparent"] == TRACE
    assert json.loads(world.sink.delivered[f"results/{TASK}.json"][0])["traceparent"] == TRACE


def test_an_error_result_has_it_too() -> None:
    world = World(repo_fault=PermanentError(Code.GITEA_NOT_ALLOWED, en="another server", zh="服务器不允许"))
    world.accept(payload(traceparent=TRACE))
    world.settle()

    found = world.result(TASK)
    assert (found["success"], found["errorCode"], found["traceparent"]) == (False, "GITEA_NOT_ALLOWED", TRACE)


def test_without_one_the_job_begins_a_trace_that_its_sender_need_not_know() -> None:
    world = World()
    world.accept(payload())
    world.settle()

    trace = world.record(TASK).traceparent
    assert is_fresh(trace)
    assert {line["traceparent"] for line in journal(world)} == {trace} == {c.traceparent for c in world.model.calls}
    assert set(world.result(TASK)) == set(Result(success=True, task_id=TASK).document())


@pytest.mark.parametrize("value", MALFORMED, ids=range(len(MALFORMED)))
def test_a_malformed_one_counts_as_none(value: object) -> None:
    world = World()
    world.accept(payload(traceparent=value))
    world.settle()

    assert read_traceparent(value) == ""
    assert is_fresh(world.record(TASK).traceparent)
    assert world.result(TASK)["success"]
    assert "traceparent" not in world.result(TASK)


def test_one_trace_holds_all_attempts_and_replays() -> None:
    world = World()
    away = TransientError(Code.MODEL_UNREACHABLE, en="connection refused", zh="连不上")
    world.model = FailingAt(world.model, "complete", away)
    world.accept(payload())
    world.settle(patience_s=60.0)
    trace = world.record(TASK).traceparent

    replay(desk_of(world), TASK, ReplayOrder(publish_again=True, from_stage="select"))
    world.settle()

    lines = journal(world)
    assert {line["event"] for line in lines} >= {"accept", "park", "replay"}
    assert {line["generation"] for line in lines} == {0, 1}
    assert {line.get("traceparent") for line in lines} == {trace}


def test_a_repeat_with_another_header_stays_in_the_first_trace() -> None:
    world = World()
    world.accept(payload(), traceparent=TRACE)
    world.accept(payload(), traceparent=TRACE.replace("0af7", "1af7"))
    world.settle()

    assert world.record(TASK).traceparent == world.result(TASK)["traceparent"] == TRACE


def test_a_lost_record_comes_back_with_the_trace_that_the_job_began() -> None:
    world = World()
    world.accept(payload())
    trace = world.record(TASK).traceparent
    world.records = FakeJobRecords(now=world.clock.now)

    recover(Upkeep(world.records, world.ports, pipeline_of, None, lambda _s: 0, "reconciler"))  # type: ignore[arg-type]

    assert world.record(TASK).traceparent == trace


def test_an_entry_of_the_stream_tells_it_beside_the_document() -> None:
    document = Result(success=True, task_id=TASK).document_for(TRACE)

    assert result_fields(TASK, json.dumps(document).encode())["traceparent"] == TRACE
    assert "traceparent" not in result_fields(TASK, json.dumps(Result(success=True, task_id=TASK).document()).encode())


def test_a_fresh_one_has_the_form_of_the_standard_and_is_told_from_a_senders() -> None:
    fresh = fresh_traceparent("4bf92f3577b34da6a3ce929d0e0e4736")

    assert re.fullmatch("00-[0-9a-f]{32}-[0-9a-f]{16}-01", fresh)
    assert read_traceparent(fresh) == fresh
    assert (trace_of(fresh), given_by_sender(fresh)) == ("4bf92f3577b34da6a3ce929d0e0e4736", "")
    assert (is_fresh(TRACE), is_fresh(""), given_by_sender(TRACE)) == (False, False, TRACE)
