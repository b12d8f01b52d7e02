"""Spans reach an OpenTelemetry collector, in the sender's trace, and never cost a job anything."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tasks.contract.trace import span_of, trace_of
from tasks.errors import Code, PermanentError, TransientError
from tests.fakes import PAGES, FailingAt, World, payload
from tests.otlp_collector import OtlpCollector, collecting
from worker.adapters.otlp_spans import (
    Collector,
    OtlpSpans,
    headers_can_be_read,
    is_installed,
    open_spans,
    problem_of,
)
from worker.ops.doctor import AREAS
from worker.settings import Settings

pytestmark = pytest.mark.skipif(not is_installed(), reason="the extra otel is not installed")

TASK = "query-c1-m1"
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
STAGES = ["kbw.prepare", "kbw.select", "kbw.fetch", "kbw.answer", "kbw.apply", "kbw.commit", "kbw.publish"]


@pytest.fixture
def collector() -> Iterator[OtlpCollector]:
    with collecting() as found:
        yield found


def told_to(url: str, **facts: str) -> OtlpSpans:
    return OtlpSpans(Collector(url, service="kbw", version="1", worker="w1", **facts))


def run_job(world: World, document: dict[str, Any], *, patience_s: float = 0.0) -> None:
    world.accept(document)
    world.settle(patience_s=patience_s)
    world.spans.close()
    for thread in threading.enumerate():
        if thread.name == "last-spans":  # close() waits for a moment only, and this machine may be busy
            thread.join()


def test_every_stage_is_a_span_below_the_senders(collector: OtlpCollector) -> None:
    world = World(spans=told_to(collector.url))
    run_job(world, payload(traceparent=TRACE))

    spans = collector.spans()
    assert [span.name for span in spans] == STAGES
    assert {(span.trace_id, span.parent_id) for span in spans} == {(trace_of(TRACE), span_of(TRACE))}
    assert len({span.span_id for span in spans}) == len(STAGES)
    assert all(span.ended >= span.began and not span.failed for span in spans)
    assert spans[0].resource["service.name"] == "kbw"
    facts = spans[0].attributes
    assert facts["kbw.task_id"] == TASK
    assert (facts["kbw.stage"], facts["kbw.outcome"], facts["kbw.attempt"]) == ("prepare", "checkpoint", 1)


def test_a_call_to_the_model_goes_on_in_the_span_of_its_stage(collector: OtlpCollector) -> None:
    world = World(spans=told_to(collector.url))
    run_job(world, payload(traceparent=TRACE))

    asked = [span for span in collector.spans() if span.name in ("kbw.select", "kbw.answer")]
    assert [f"00-{span.trace_id}-{span.span_id}-01" for span in asked] == [c.traceparent for c in world.model.calls]
    assert all(span.attributes["kbw.model_calls"] == 1 for span in asked)
    assert all(span.attributes["gen_ai.usage.input_tokens"] > 0 for span in asked)
    assert world.result(TASK)["traceparent"] == TRACE, "the result names the sender's own"


def test_no_word_of_question_page_or_answer_is_told(collector: OtlpCollector) -> None:
    world = World(spans=told_to(collector.url, headers="authorization=Bearer%20hush-hush"))
    run_job(world, payload(traceparent=TRACE))

    answer = world.result(TASK)["answer"]
    told = b"".join(body for _, _, body in collector.requests).decode("utf-8", "ignore")
    assert {headers["authorization"] for _, headers, _ in collector.requests} == {"Bearer hush-hush"}
    for text in (payload()["question"], answer[:10], *PAGES, "租约", "hush-hush"):
        assert str(text) not in told


def test_a_job_without_a_sender_is_one_whole_trace(collector: OtlpCollector) -> None:
    world = World(spans=told_to(collector.url))
    run_job(world, payload())

    spans = {span.name: span for span in collector.spans()}
    root = spans.pop("kbw.job")
    assert (root.trace_id, root.span_id) == (trace_of(trace := world.record(TASK).traceparent), span_of(trace))
    assert root.parent_id == ""
    assert sorted(spans) == sorted(STAGES)
    assert {(span.trace_id, span.parent_id) for span in spans.values()} == {(root.trace_id, root.span_id)}


def test_attempts_that_fail_are_spans_that_say_so(collector: OtlpCollector) -> None:
    world = World(spans=told_to(collector.url))
    away = TransientError(Code.MODEL_UNREACHABLE, en="connection refused", zh="连不上")
    refused = PermanentError(Code.MODEL_AUTH, en="401", zh="密钥被拒绝")
    world.model = FailingAt(world.model, "complete", away, refused)
    run_job(world, payload(traceparent=TRACE), patience_s=60.0)

    told = [(s.name, s.failed, s.attributes["kbw.outcome"], s.attributes.get("error.type")) for s in collector.spans()]
    assert told == [
        ("kbw.prepare", False, "checkpoint", None),
        ("kbw.select", True, "park", "MODEL_UNREACHABLE"),
        ("kbw.select", True, "fail", "MODEL_AUTH"),
        ("kbw.publish", True, "finish", "MODEL_AUTH"),
    ]
    assert len({span.trace_id for span in collector.spans()}) == 1


def test_a_trace_that_its_sender_does_not_record_is_not_told(collector: OtlpCollector) -> None:
    world = World(spans=told_to(collector.url))
    run_job(world, payload(traceparent=TRACE[:-2] + "00"))

    assert collector.spans() == []
    assert world.result(TASK)["success"]


def test_a_collector_that_hangs_or_is_away_holds_up_no_job(collector: OtlpCollector) -> None:
    collector.open.clear()
    for number, url in ((1, collector.url), (2, "http://127.0.0.1:9")):
        world = World(spans=told_to(url))
        world.accept(payload(number))
        world.settle()
        world.spans.close()  # it too comes back before the collector answers
        assert world.result(f"query-c{number}-m{number}")["success"]


def test_nothing_follows_a_redirect() -> None:
    with collecting() as elsewhere, collecting(status=307) as first:
        first.headers["Location"] = f"{elsewhere.url}/v1/traces"
        world = World(spans=told_to(first.url))
        run_job(world, payload())
        assert first.requests
        assert elsewhere.requests == []


def test_without_an_endpoint_nothing_is_told_and_the_senders_span_goes_to_the_model() -> None:
    world = World(spans=open_spans(Collector("")))
    run_job(world, payload(traceparent=TRACE))

    assert {call.traceparent for call in world.model.calls} == {TRACE}


def test_the_doctor_says_whether_spans_arrive(collector: OtlpCollector, tmp_path: Path) -> None:
    def told(url: str) -> tuple[str, str]:
        settings = Settings.load({"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OPENCLAW_SHARED_DIR": str(tmp_path)})
        (check,) = AREAS["traces"](settings)
        return check.status, check.found

    assert told("") == ("ok", "no spans are sent (OTEL_EXPORTER_OTLP_ENDPOINT is not set)")
    assert told(collector.url) == ("ok", f"spans go to {collector.url}")
    assert told("http://u:p@127.0.0.1:9")[0] == "warn"
    assert "u:p" not in told("http://u:p@127.0.0.1:9")[1]
    collector.status = 401
    assert problem_of(Collector(collector.url)).endswith("answers 401")


@pytest.mark.parametrize(
    ("endpoint", "headers", "told"),
    [
        ("http://collector.example:4318", "authorization=Bearer%20x", True),
        ("http://collector.example:4318", "", False),
        ("https://collector.example:4318", "authorization=Bearer%20x", False),
        ("http://127.0.0.1:4318", "authorization=Bearer%20x", False),
    ],
)
def test_a_token_that_would_travel_in_clear_is_noticed(endpoint: str, headers: str, told: bool) -> None:
    assert headers_can_be_read(Collector(endpoint, headers)) is told
