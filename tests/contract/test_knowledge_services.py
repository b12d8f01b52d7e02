"""SEMANTIC_API over real sockets: dialects, statuses, guard, deadline, and services that lie."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from tasks.knowledge.found import Found, Status
from tests.fakes_knowledge import Asked, Said, environment, said, service, silent_service, spec
from worker.adapters.knowledge.semantic import SemanticSource
from worker.clock import SystemClock
from worker.outbound import AllowedHosts, Outbound

CLOCK = SystemClock()
LOCAL = AllowedHosts(("127.0.0.1",))


def ask(
    url: str,
    query: str = "租约到期？",
    *,
    allowed: AllowedHosts = LOCAL,
    env: Any = None,
    resolve: Any = None,
    **config: Any,
) -> Found:
    outbound = Outbound(allowed, CLOCK.monotonic, **({"resolve": resolve} if resolve else {}))
    source = SemanticSource(spec(endpoint=url, **config), outbound, env or environment(), CLOCK)
    try:
        return source.search(query)
    finally:
        outbound.close()


def contents(found: Found) -> list[str]:
    assert found.status == Status.HIT, found.detail
    return [hit.content for hit in found.hits]


# ---------------------------------------------------------------- generic


def test_a_service_nobody_described_is_asked_plainly_and_its_text_taken() -> None:
    with service(Said(body="聚合后的文本".encode(), content_type="text/plain")) as there:
        found = ask(f"{there.url}/v1/knowledge/search")

    assert contents(found) == ["聚合后的文本"]
    assert (there.asked[0].method, there.asked[0].path) == ("POST", "/v1/knowledge/search")
    assert there.asked[0].json == {"query": "租约到期？"}
    assert there.asked[0].headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("一段文字", ["一段文字"]),
        (["甲", "乙"], ["甲", "乙"]),
        ({"answer": "甲"}, ["甲"]),
        ({"data": {"text": "甲"}}, ["甲"]),
        ({"records": [{"content": "甲"}, {"text": "乙"}]}, ["甲", "乙"]),
        ({"code": 0, "message": "ok", "data": {"list": [{"content": "甲"}]}}, ["甲"]),
        ({"success": True, "result": [{"passage": "甲", "score": 0.7}]}, ["甲"]),
    ],
)
def test_usual_forms_are_read_without_a_description(answer: Any, expected: list[str]) -> None:
    with service(said(answer)) as there:
        assert contents(ask(there.url)) == expected


@pytest.mark.parametrize(
    "answer",
    [
        {"records": []}, {"data": None}, [], None, "", {"answer": " "}, {"data": []},
        {"code": "00000", "msg": "ok", "data": []}, {"code": "SUCCESS", "message": "", "status": "ok", "data": []},
    ],
)  # fmt: skip
def test_nothing_found_is_no_fault(answer: Any) -> None:
    with service(said(answer)) as there:
        assert ask(there.url).status == Status.ZERO_HIT
    with service(Said(body=b"")) as there:
        assert ask(there.url).status == Status.ZERO_HIT


def test_a_described_service_is_asked_and_read_as_described() -> None:
    answer = {"out": {"rows": [{"doc": {"body": "甲"}, "head": "题", "s": "0.5", "v": 0.5, "at": "https://e.com"}]}}
    request = {"q": "{{query}}", "opts": {"n": 3, "of": ["x", "{{query}}"]}}
    mapping = {"records": "out.rows", "content": "doc.body", "title": "head", "score": "v", "url": "at"}
    with service(said(answer)) as there:
        found = ask(there.url, "问", request=request, response=mapping)

    assert there.asked[0].json == {"q": "问", "opts": {"n": 3, "of": ["x", "问"]}}
    hit = found.hits[0]
    assert (hit.content, hit.title, hit.score, hit.url) == ("甲", "题", 0.5, "https://e.com")


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        ({"code": 0, "msg": "ok", "out": {"rows": None}}, Status.ZERO_HIT),
        ({"code": 500, "msg": "boom", "out": None}, Status.BAD_RESPONSE),
        ({"success": False, "error": "boom"}, Status.BAD_RESPONSE),
        ({"code": 7, "message": "found", "out": {"rows": ["甲"]}}, Status.HIT),
    ],
)
def test_a_described_service_that_tells_an_error_has_not_found_nothing(answer: Any, status: Status) -> None:
    with service(said(answer)) as there:
        assert ask(there.url, response={"records": "out.rows"}).status == status


def test_get_puts_the_question_into_the_url() -> None:
    with service(said({"answer": "甲"})) as there:
        ask(f"{there.url}/s?lang=zh", "租 约&x=1", method="GET")

    assert (there.asked[0].method, there.asked[0].body) == ("GET", b"")
    assert there.asked[0].path == "/s?lang=zh&query=%E7%A7%9F+%E7%BA%A6%26x%3D1"


# ---------------------------------------------------------------- Dify and RAGFlow

DIFY = {"adapter": "dify", "request": {"knowledge_id": "k1", "top_k": 3, "score_threshold": 0.4}}
RAGFLOW = {"adapter": "ragflow", "request": {"dataset_ids": ["d1"], "top_k": 4, "similarity_threshold": 0.3}}


def test_dify_is_asked_and_read_in_its_own_form() -> None:
    record = {"content": "甲", "score": 0.9, "title": "题", "metadata": {"url": "https://e.com"}}
    with service(said({"records": [record, {**record, "metadata": None}]})) as there:
        found = ask(
            f"{there.url}/api", headers={"Authorization": "Bearer {{env.KB_T}}"}, env=environment(KB_T="t0k3n"), **DIFY
        )

    assert there.asked[0].path == "/api/retrieval"
    assert there.asked[0].headers["authorization"] == "Bearer t0k3n"
    assert there.asked[0].json == {
        "knowledge_id": "k1",
        "query": "租约到期？",
        "retrieval_setting": {"top_k": 3, "score_threshold": 0.4},
    }
    assert contents(found) == ["甲", "甲"]
    assert (found.hits[0].title, found.hits[0].score, found.hits[0].url) == ("题", 0.9, "https://e.com")


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (said({"records": []}), Status.ZERO_HIT),
        (said({"error_code": 1001, "error_msg": "x"}, 403), Status.UNAUTHORIZED),
        (said({"error_code": 1002, "error_msg": "x"}), Status.UNAUTHORIZED),
        (said({"error_code": 2001, "error_msg": "x"}, 400), Status.KB_NOT_FOUND),
        (said({"error_code": 2001, "error_msg": "x"}), Status.KB_NOT_FOUND),
        (said({"hits": []}), Status.BAD_RESPONSE),
        (said({"records": [{"score": 1}]}), Status.BAD_RESPONSE),
    ],
)
def test_difys_error_codes_say_what_is_wrong(answer: Said, status: Status) -> None:
    with service(answer) as there:
        assert ask(there.url, **DIFY).status == status


@pytest.mark.parametrize("given", ["", "/", "/api/v1", "/api/v1/", "/api/v1/retrieval"])
def test_ragflow_is_asked_and_read_in_its_own_form(given: str) -> None:
    chunk = {"content": "甲", "similarity": 0.6, "document_keyword": "手册.pdf"}
    with service(said({"code": 0, "data": {"chunks": [chunk], "total": 1}})) as there:
        found = ask(there.url + given, **RAGFLOW)

    assert there.asked[0].path == "/api/v1/retrieval"
    assert there.asked[0].json == {
        "question": "租约到期？",
        "dataset_ids": ["d1"],
        "page": 1,
        "page_size": 4,
        "similarity_threshold": 0.3,
    }
    assert (found.hits[0].title, found.hits[0].score_kind) == ("手册.pdf", "blended")


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        ({"code": 0, "data": {"chunks": []}}, Status.ZERO_HIT),
        ({"code": 109, "message": "Authentication error: API key is invalid!"}, Status.UNAUTHORIZED),
        ({"code": 102, "message": "You don't own the dataset d1."}, Status.KB_NOT_FOUND),
        ({"code": 100, "message": "boom"}, Status.BAD_RESPONSE),
        ({"data": {"chunks": []}}, Status.BAD_RESPONSE),
    ],
)
def test_ragflows_codes_say_what_is_wrong(answer: Any, status: Status) -> None:
    with service(said(answer)) as there:
        assert ask(there.url, **RAGFLOW).status == status


# ---------------------------------------------------------------- statuses and tries


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (401, Status.UNAUTHORIZED),
        (403, Status.UNAUTHORIZED),
        (404, Status.KB_NOT_FOUND),
        (400, Status.MISCONFIGURED),
        (422, Status.MISCONFIGURED),
        (429, Status.UNAVAILABLE),
        (500, Status.UNAVAILABLE),
        (503, Status.UNAVAILABLE),
        (204, Status.BAD_RESPONSE),
    ],
)
def test_every_http_status_has_its_meaning(code: int, status: Status) -> None:
    with service(Said(code)) as there:
        found = ask(there.url, retry=0)

    assert found.status == status
    assert str(code) in found.detail


@pytest.mark.parametrize("code", [429, 502, 503, 504])
def test_what_may_pass_is_tried_again(code: int) -> None:
    with service(Said(code), said({"answer": "甲"})) as there:
        assert contents(ask(there.url)) == ["甲"]
    assert len(there.asked) == 2


@pytest.mark.parametrize("code", [400, 401, 404, 500])
def test_what_will_not_pass_is_not_tried_again(code: int) -> None:
    with service(Said(code)) as there:
        ask(there.url, retry=5)
    assert len(there.asked) == 1


def test_tries_are_bounded() -> None:
    with service(Said(503)) as there:
        ask(there.url, retry=2)
    assert len(there.asked) == 3


def test_a_service_that_asks_for_more_patience_than_there_is_is_not_waited_for() -> None:
    started = time.monotonic()
    with service(Said(429, headers={"retry_after": "100"})) as there:
        assert ask(there.url, retry=3, timeout=60).status == Status.UNAVAILABLE
    assert len(there.asked) == 1
    assert time.monotonic() - started < 50


def test_nobody_there_is_unavailable() -> None:
    with service(Said()) as there:
        gone = there.url
    assert ask(gone, retry=0).status == Status.UNAVAILABLE


# ---------------------------------------------------------------- services that lie


@pytest.mark.parametrize(
    "answer",
    [
        Said(body=b"<!DOCTYPE html><html>login</html>", content_type="text/html"),
        Said(body=b"  <html>login</html>"),
        said({"success": False, "error": {"code": 1007}}),
        said({"error": "database is down", "data": []}),
        said({"code": 500, "message": "boom", "data": None}),
        said({"code": 500, "msg": "boom", "data": None}),
        said({"errcode": 40001, "errmsg": "boom", "data": None}),
        said({"code": "500", "message": "boom", "data": []}),
        said({"error_code": 1002, "error_msg": "boom", "records": []}),
        said({"status": "error", "results": []}),
        said({"unheard": "of"}),
        said({"records": [{"nothing": 1}]}),
        said({"records": [7]}),
        Said(body=b'{"answer": "half'),
        Said(body=b"\xff\xfe\x00"),
        Said(body=b"[" * 100_000),
    ],
)
def test_an_answer_that_is_none_is_a_bad_response(answer: Said) -> None:
    with service(answer) as there:
        found = ask(there.url)

    assert found.status == Status.BAD_RESPONSE
    assert found.hits == ()
    assert "database" not in found.detail


def test_ten_megabytes_are_refused_while_they_come() -> None:
    with service(Said(body=b'{"answer": "' + b"x" * 10_000_000 + b'"}')) as there:
        found = ask(there.url)

    assert found.status == Status.BAD_RESPONSE
    assert "8 MiB" in found.detail


@pytest.mark.parametrize("target", ["http://169.254.169.254/latest/meta-data/", "/elsewhere", "file:///etc/passwd"])
def test_a_redirect_is_not_followed(target: str) -> None:
    with service(Said(302, headers={"location": target}), said({"answer": "stolen"})) as there:
        found = ask(there.url)

    assert found.status == Status.BAD_RESPONSE
    assert len(there.asked) == 1


@pytest.mark.parametrize(
    ("first", "drip"),
    [
        (b"", b""),
        (b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n", b""),
        (b"HTTP/1.1 200 OK\r\n", b"X-A: b\r\n"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b"x"),
    ],
    ids=["silent", "half a head", "dripping head", "dripping body"],
)
def test_a_socket_that_hangs_costs_the_deadline_and_no_more(first: bytes, drip: bytes) -> None:
    started = time.monotonic()
    with silent_service(first, drip=drip) as port:
        found = ask(f"http://127.0.0.1:{port}", timeout=4, retry=5)

    assert found.status == Status.TIMEOUT
    assert time.monotonic() - started > 3.9
    assert found.ms < 20_000, "six tries of 4 s do not add up"


def test_what_is_no_http_is_unavailable() -> None:
    with silent_service(b"SSH-2.0-OpenSSH_9.2\r\n") as port:
        assert ask(f"http://127.0.0.1:{port}", timeout=2, retry=0).status in (Status.UNAVAILABLE, Status.TIMEOUT)


# ---------------------------------------------------------------- guard


@pytest.mark.parametrize("allowed", [(), ("127.0.0.2",), ("127.0.0.1:1",), ("example.com",)])
def test_without_tls_only_a_listed_host_is_called(allowed: tuple[str, ...]) -> None:
    with service(said({"answer": "甲"})) as there:
        found = ask(there.url, allowed=AllowedHosts(allowed))

    assert found.status == Status.MISCONFIGURED
    assert "KBW_KNOWLEDGE_ALLOWED_HOSTS" in found.detail
    assert there.asked == []


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "10.0.0.8", "169.254.169.254", "192.168.1.1", "::1", "fd00::1", "fe80::1%eth0", "0.0.0.0",
     "::ffff:10.0.0.1", "64:ff9b::7f00:1", "64:ff9b:1::1", "fec0::1", "::127.0.0.1", "100.64.0.1"],
)  # fmt: skip
def test_a_public_name_that_leads_inside_is_not_called(address: str) -> None:
    found = ask("https://kb.example.com/x", allowed=AllowedHosts(), resolve=lambda *_: [address], retry=0)

    assert (found.status, "KBW_KNOWLEDGE_ALLOWED_HOSTS" in found.detail) == (Status.MISCONFIGURED, True)


def test_the_connection_goes_to_the_address_that_was_checked_and_to_no_later_one() -> None:
    looked_up: list[str] = []

    def resolve(host: str, port: int) -> list[str]:
        looked_up.append(host)
        return ["127.0.0.1"]

    with service(said({"answer": "甲"})) as there:
        found = ask(f"http://kb.test:{there.port}/x", allowed=AllowedHosts((f"kb.test:{there.port}",)), resolve=resolve)

    assert contents(found) == ["甲"]
    assert there.asked[0].headers["host"] == f"kb.test:{there.port}"
    assert looked_up == ["kb.test"]


def test_a_look_up_that_hangs_costs_the_deadline_and_no_more() -> None:
    over = threading.Event()
    started = time.monotonic()

    found = ask("https://kb.example.com", timeout=1, resolve=lambda *_: over.wait(60) or [])

    waited = time.monotonic() - started
    over.set()
    assert found.status == Status.TIMEOUT
    assert waited < 30


# ---------------------------------------------------------------- secrets


def test_a_missing_variable_is_named_at_the_call() -> None:
    found = ask("http://127.0.0.1:1", headers={"Authorization": "Bearer {{env.KB_SERVICE_TOKEN}}"})

    assert found.status == Status.MISCONFIGURED
    assert "KB_SERVICE_TOKEN is not set" in found.detail


def test_a_variable_off_the_list_is_never_read() -> None:
    found = ask("http://127.0.0.1:1", headers={"X": "{{env.HOME}}"}, env=environment(HOME="/root"))

    assert (found.status, "KBW_KNOWLEDGE_ENV" in found.detail) == (Status.MISCONFIGURED, True)


def test_a_service_that_repeats_our_secret_does_not_get_it_into_a_prompt() -> None:
    def echo(request: Asked) -> Said:
        return said({"answer": f"you sent {request.headers['authorization']}"})

    with service(echo) as there:
        found = ask(there.url, headers={"Authorization": "Bearer {{env.KB_T}}"}, env=environment(KB_T="s3cr3t-value"))

    assert contents(found) == ["you sent Bearer [secret]"]


@pytest.mark.parametrize("answer", [Said(500, b"s3cr3t-value"), Said(body=b"<html>s3cr3t-value"), Said(302)])
def test_no_detail_holds_a_secret_or_what_the_service_wrote(answer: Said) -> None:
    with service(answer) as there:
        found = ask(f"{there.url}/{{{{env.KB_T}}}}", env=environment(KB_T="s3cr3t-value"), retry=0)

    assert "s3cr3t" not in found.detail


def test_credentials_in_the_endpoint_are_refused_rather_than_dropped() -> None:
    found = ask("http://u:{{env.KB_T}}@127.0.0.1:1/x", env=environment(KB_T="s3cr3t-value"))

    assert (found.status, "config.headers" in found.detail) == (Status.MISCONFIGURED, True)
    assert "s3cr3t" not in found.detail


def test_a_secret_with_a_line_break_cannot_add_a_header() -> None:
    with service(said({"answer": "甲"})) as there:
        found = ask(there.url, headers={"Authorization": "Bearer {{env.KB_T}}"}, env=environment(KB_T="a\r\nX-Evil: 1"))

    assert found.status == Status.MISCONFIGURED
    assert there.asked == []


def test_the_proxy_of_the_environment_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    with service(said({"answer": "甲"})) as there:
        assert contents(ask(there.url, retry=0)) == ["甲"]
