"""``POST /retrieval``: the team's pages in Dify's form; asked by our own Dify adapter and by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Thread
from typing import Any

import httpx
import pytest

from tasks.errors import Code, TransientError
from tasks.knowledge.found import Status
from tests.fakes import PAGES, REPO, FailingAt
from tests.fakes_kb_reader import FakeKbReader
from tests.fakes_knowledge import environment, spec
from worker.adapters.knowledge.semantic import SemanticSource
from worker.clock import SystemClock
from worker.intake.http.app import Probe, Probes
from worker.intake.http.retrieval import MAX_TOP_K, RetrievalApi
from worker.intake.http.server import Address, HttpServer
from worker.masking import SecretMask
from worker.outbound import AllowedHosts, Outbound

TOKEN = "retrieval-t0k3n"
MASK = SecretMask([TOKEN])


def api(kb: Any = None) -> RetrievalApi:
    if kb is None:
        kb = FakeKbReader()
        kb.publish(REPO, {**PAGES, "concepts/leak.md": f"# 泄漏\n\n口令 {TOKEN} 写在了页面里。\n"})
    return RetrievalApi(kb, {str(REPO): REPO}.get, TOKEN, MASK.value)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A real server that serves nothing but retrieval."""
    well = Probes(live=lambda: Probe(ok=True), ready=lambda: Probe(ok=True), metrics=lambda: "")
    server, stop = HttpServer(Address("127.0.0.1", 0), None, well, "", retrieval=api()), Event()  # type: ignore[arg-type]  # no jobs here
    thread = Thread(target=server.run, args=(stop,), daemon=True)
    thread.start()
    for _ in range(6_000):
        if server.bound:
            break
        stop.wait(0.01)
    assert server.bound
    yield f"http://127.0.0.1:{server.bound[1]}"
    stop.set()
    thread.join(60)


def body(**changes: Any) -> dict[str, Any]:
    setting = {"top_k": 3, "score_threshold": 0.0}
    return {"knowledge_id": str(REPO), "query": "租约到期之后会怎样？", "retrieval_setting": setting, **changes}


def post(url: str, document: Any = None, authorization: str = f"Bearer {TOKEN}", **options: Any) -> httpx.Response:
    headers = {"Authorization": authorization} if authorization else {}
    sent = {"json": body() if document is None else document, **options}
    return httpx.post(f"{url}/retrieval", headers=headers, trust_env=False, timeout=20, **sent)


def test_records_have_the_form_that_dify_documents(url: str) -> None:
    answer = post(url)

    assert answer.status_code == 200
    records = answer.json()["records"]
    assert records[0]["title"] == "租约"
    assert "协调器会再次唤醒任务" in records[0]["content"]
    assert records[0]["metadata"]["path"] == "concepts/lease.md"
    for record in records:
        assert set(record) == {"content", "score", "title", "metadata"}
        assert 0 <= record["score"] <= 1
        assert isinstance(record["metadata"], dict)
    scores = [record["score"] for record in records]
    assert scores == sorted(scores, reverse=True)


def test_our_own_dify_adapter_reads_it(url: str) -> None:
    clock = SystemClock()
    outbound = Outbound(AllowedHosts(("127.0.0.1",)), clock.monotonic)
    config = {
        "adapter": "dify",
        "request": {"knowledge_id": str(REPO)},
        "headers": {"Authorization": "Bearer {{env.KB_T}}"},
    }
    source = SemanticSource(spec(endpoint=url, **config), outbound, environment(KB_T=TOKEN), clock)

    found = source.search("租约到期")

    outbound.close()
    assert found.status == Status.HIT
    assert found.hits[0].title == "租约"


def test_a_threshold_keeps_what_reaches_it_and_a_question_about_nothing_finds_nothing(url: str) -> None:
    all_scores = [record["score"] for record in post(url).json()["records"]]
    limit = all_scores[0]

    kept = post(url, body(retrieval_setting={"top_k": 3, "score_threshold": limit})).json()["records"]
    nothing = post(url, body(query="quantum chromodynamics", retrieval_setting={"top_k": 3, "score_threshold": 0.5}))

    assert [record["score"] for record in kept] == [score for score in all_scores if score >= limit]
    assert nothing.json() == {"records": []}


def test_top_k_is_a_bound(url: str) -> None:
    assert len(post(url, body(retrieval_setting={"top_k": 1})).json()["records"]) == 1
    assert post(url, body(retrieval_setting={"top_k": MAX_TOP_K * 10})).status_code == 200


@pytest.mark.parametrize(
    ("authorization", "code"),
    [
        ("", 1001),
        ("Bearer", 1001),
        (f"Basic {TOKEN}", 1001),
        ("Bearer wrong", 1002),
        ("bearer é", 1002),
    ],
)
def test_who_may_not_ask_is_told_in_difys_codes(url: str, authorization: str, code: int) -> None:
    sent = {b"authorization": authorization.encode("latin-1")} if authorization else {}
    answer = httpx.post(f"{url}/retrieval", headers=sent, json=body(), trust_env=False, timeout=20)

    assert (answer.status_code, answer.json()["error_code"]) == (403, code)


@pytest.mark.parametrize(
    ("document", "status", "code"),
    [
        (body(knowledge_id="team/other"), 404, 2001),
        (body(knowledge_id="../kb"), 404, 2001),
        (body(knowledge_id=""), 400, 3001),
        (body(query=" "), 400, 3001),
        (body(query=["x"]), 400, 3001),
        (body(retrieval_setting={"top_k": 0}), 400, 3001),
        (body(retrieval_setting={"top_k": True}), 400, 3001),
        (body(retrieval_setting={"score_threshold": 2}), 400, 3001),
        (body(retrieval_setting=[1]), 400, 3001),
        (body(metadata_condition={"logical_operator": "and", "conditions": [{"name": ["a"]}]}), 400, 3002),
        ([], 400, 3001),
    ],
)
def test_a_request_that_cannot_be_served_says_why(url: str, document: Any, status: int, code: int) -> None:
    answer = post(url, document)

    assert (answer.status_code, answer.json()["error_code"]) == (status, code)
    assert answer.json()["error_msg"]


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[" * 50_000, b'"' + b"x" * 1000])
def test_a_body_that_is_no_json_is_refused(url: str, content: bytes) -> None:
    answer = httpx.post(
        f"{url}/retrieval", headers={"Authorization": f"Bearer {TOKEN}"}, content=content, trust_env=False, timeout=20
    )

    assert (answer.status_code, answer.json()["error_code"]) == (400, 3001)


@pytest.mark.parametrize("condition", [None, {}, {"logical_operator": "and", "conditions": []}])
def test_an_empty_condition_is_none(url: str, condition: Any) -> None:
    assert post(url, body(metadata_condition=condition)).status_code == 200


def test_without_a_token_of_their_own_jobs_stay_closed(url: str) -> None:
    for authorization in ("Bearer ", f"Bearer {TOKEN}", "Bearer x"):
        answer = httpx.get(f"{url}/jobs", headers={"Authorization": authorization.strip()}, trust_env=False, timeout=20)
        assert answer.status_code == 401


def test_a_secret_in_a_page_does_not_go_out() -> None:
    answer = api().retrieve(json.dumps(body(query="泄漏 口令")).encode())

    assert TOKEN.encode() not in answer.body
    assert b"[secret]" in answer.body


def test_a_repository_that_cannot_be_reached_is_later_not_never() -> None:
    away = FailingAt(FakeKbReader(), "latest", TransientError(Code.KB_UNREACHABLE, en="down", zh="不可用"))

    answer = api(away).retrieve(json.dumps(body()).encode())

    assert (answer.status, json.loads(answer.body)["error_code"]) == (503, 5001)


def test_many_ask_at_once(url: str) -> None:
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda _: post(url).status_code, range(24)))

    assert set(answers) == {200}
