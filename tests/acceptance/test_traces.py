"""A sender's trace goes through real worker processes to every way out, and its spans to a collector."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from tests.acceptance.system import PATIENCE_S, running_system, wait_for
from tests.acceptance.test_ways_in import HTTP_TOKEN
from tests.otlp_collector import collecting
from tests.ports import free_port
from worker.adapters.job_store.streams import JobStreams
from worker.adapters.otlp_spans import is_installed

pytestmark = pytest.mark.acceptance

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.skipif(not is_installed(), reason="the extra otel is not installed")
def test_file_stream_and_http_give_the_trace_back_and_every_stage_is_a_span(tmp_path: Path) -> None:
    more = {"KBW_HTTP_TOKEN": HTTP_TOKEN, "KBW_HTTP_ADDR": f"127.0.0.1:{free_port()}"}
    with (
        collecting() as collector,
        running_system(tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT=collector.url, **more) as system,
    ):
        up = system.up()
        system.drop(system.payload(1, traceparent=TRACE))
        with httpx.Client(base_url=f"http://{more['KBW_HTTP_ADDR']}", trust_env=False, timeout=PATIENCE_S) as client:
            client.headers["Authorization"] = f"Bearer {HTTP_TOKEN}"
            wait_for(lambda: _answers(client), PATIENCE_S, system.tail)
            client.post("/jobs", json=system.payload(2), headers={"traceparent": TRACE}).raise_for_status()
            system.results(["query-c1-m1", "query-c2-m2"])
            told = client.get("/jobs/query-c2-m2").json()["result"]
        redis = JobStreams(system.server.url, "kbw:")._client
        wait_for(lambda: redis.xlen("kbw:results") >= 2, PATIENCE_S, system.tail)  # told there after the file
        entries = [fields for _, fields in redis.xrange("kbw:results")]
        assert system.stop(up) == 0

    assert system.result("query-c1-m1")["traceparent"] == told["traceparent"] == TRACE
    assert {fields[b"traceparent"].decode() for fields in entries} == {TRACE}
    assert {json.loads(fields[b"result"])["traceparent"] for fields in entries} == {TRACE}
    spans = collector.spans()
    for task_id in ("query-c1-m1", "query-c2-m2"):
        stages = {span.attributes["kbw.stage"] for span in spans if span.attributes["kbw.task_id"] == task_id}
        assert stages == {"prepare", "select", "fetch", "answer", "apply", "commit", "publish"}
    assert {span.trace_id for span in spans} == {TRACE[3:35]}


def _answers(client: httpx.Client) -> bool:
    try:
        return client.get("/ready").status_code == 200
    except httpx.TransportError:
        return False
