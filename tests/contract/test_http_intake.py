"""HTTP as a way in and out keeps its promises: codes, bodies, limits, and clients that mean no good (CONTRACT §3.3)."""

from __future__ import annotations

import json
import logging
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread

import httpx
import pytest

from tests.ways_in_world import SECRET, WaysIn, payload
from worker.intake.http.app import Probe, Probes, Times
from worker.intake.http.jobs_api import JobsApi
from worker.intake.http.server import Address, BoundedProtocol, HttpServer, read_address

TOKEN = "http-token-4f1c"
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
MIB = 1024 * 1024
METRICS = "up 1\n" * 100_000


class HastyProtocol(BoundedProtocol):
    """The same watchdog with times a test can wait for."""

    head_s = 1.0
    request_s = 4.0
    max_connections = 20


@dataclass
class Served:
    """A running server over one world."""

    world: WaysIn
    host: str
    port: int

    def client(self, token: str | None = TOKEN) -> httpx.Client:
        headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
        return httpx.Client(base_url=f"http://{self.host}:{self.port}", headers=headers, timeout=60.0, trust_env=False)

    def raw(self) -> socket.socket:
        return socket.create_connection((self.host, self.port), timeout=20.0)


@pytest.fixture(scope="module")
def served(server_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """With the times of the product: a client here waits twenty seconds, the server thirty for a body."""
    with serving(WaysIn(server_url, tmp_path_factory.mktemp("shared")), BoundedProtocol, Times()) as running:
        yield running


@pytest.fixture(scope="module")
def hasty(server_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """For tests of the times themselves: all others would depend on a machine that is never busy."""
    with serving(WaysIn(server_url, tmp_path_factory.mktemp("hasty")), HastyProtocol, Times(2.0, 10.0)) as running:
        yield running


@contextmanager
def serving(world: WaysIn, protocol: type[BoundedProtocol], times: Times) -> Iterator[Served]:
    jobs = JobsApi(world.intake, world.records.views, world.refusals, world.mask)
    probes = Probes(
        live=lambda: Probe(ok=True), ready=lambda: Probe(ok=False, facts={"redis": False}), metrics=lambda: METRICS
    )
    server = HttpServer(Address("127.0.0.1", 0), jobs, probes, TOKEN, times=times)
    stop = Event()
    thread = Thread(target=server.run, args=(stop, protocol))
    thread.start()
    try:
        limit = time.monotonic() + 60
        while server.bound is None:
            assert time.monotonic() < limit, "the server does not listen"
            time.sleep(0.02)
        yield Served(world, *server.bound)
    finally:
        stop.set()
        thread.join(60)
    assert not thread.is_alive(), "the server does not stop"


@pytest.fixture
def number(request: pytest.FixtureRequest) -> str:
    """A conversation of this test's own."""
    return f"{abs(hash(request.node.name)):x}"


def answered(sock: socket.socket) -> bytes:
    """Everything until the server closes."""
    parts = []
    try:
        while part := sock.recv(65_536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def head(*lines: str) -> bytes:
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def status_of(raw: bytes) -> int:
    return int(raw.split(b" ", 2)[1]) if raw else 0


# ---------------------------------------------------------------- a job goes in, a result comes out


def test_new_repeat_conflict_and_result(served: Served, number: str) -> None:
    body = payload(number)
    with served.client() as client:
        first = client.post("/jobs", json=body, headers={"traceparent": TRACE})
        assert (first.status_code, first.json()) == (202, {"taskId": body["taskId"], "state": "queued"})
        again = client.post("/jobs", json=body)
        assert (again.status_code, again.json()) == (200, {"taskId": body["taskId"], "state": "queued"})
        other = client.post("/jobs", json=payload(number, question="另一个？"))
        assert other.status_code == 409
        assert (other.json()["errorCode"], other.json()["taskId"]) == ("CONFLICT", body["taskId"])
        assert "已存在且内容不同" in other.json()["errors"][0]
        open_job = client.get(f"/jobs/{body['taskId']}")
        assert open_job.status_code == 200
        assert {k: open_job.json()[k] for k in ("taskId", "state", "stage", "attempt", "result")} == {
            "taskId": body["taskId"], "state": "queued", "stage": "prepare", "attempt": 0, "result": None,
        }  # fmt: skip
        document = served.world.finish(body["taskId"])
        done = client.get(f"/jobs/{body['taskId']}")
        assert done.json()["state"] == "done"
        assert done.json()["result"] == json.loads(document)
        assert document.strip() in done.content, "the very bytes of the result"
        assert client.post("/jobs", json=body).json() == {"taskId": body["taskId"], "state": "done"}
    record = served.world.records.views.get(body["taskId"])
    assert record is not None
    assert (record.source, record.traceparent) == ("http", TRACE)
    assert [told["taskId"] for told in served.world.results()].count(body["taskId"]) == 1


def test_a_byte_order_mark_and_a_foreign_content_type_do_no_harm(served: Served, number: str) -> None:
    content = b"\xef\xbb\xbf" + json.dumps(payload(number)).encode()
    with served.client() as client:
        assert client.post("/jobs", content=content, headers={"Content-Type": "text/plain"}).status_code == 202


def test_unknown_jobs_are_404_and_leave_no_trace(served: Served) -> None:
    names = ["query-none-1", "..%2f..%2fetc%2fpasswd", "a%00b", "%ff", "x" * 300, "query-1-1/extra"]
    with served.client() as client:
        for name in names:
            found = client.get(f"/jobs/{name}")
            assert (found.status_code, found.json()["errorCode"]) == (404, "NOT_FOUND"), name
    assert not (served.world.shared / ".kbw" / "jobs" / "query-none-1").exists()


def test_jobs_are_listed_newest_first_by_state(served: Served, number: str) -> None:
    ids = [f"query-c{number}{n}-m{number}{n}" for n in range(3)]
    with served.client() as client:
        for n in range(3):
            client.post("/jobs", json=payload(f"{number}{n}"))
        served.world.finish(ids[0])
        queued = [job["taskId"] for job in client.get("/jobs", params={"state": "queued"}).json()["jobs"]]
        assert queued[:2] == [ids[2], ids[1]]
        assert ids[0] in [job["taskId"] for job in client.get("/jobs?state=done&limit=500").json()["jobs"]]
        every = client.get("/jobs?limit=2").json()["jobs"]
        assert [job["taskId"] for job in every] == [ids[2], ids[1]]
        for query in (
            "state=lost",
            "limit=0",
            "limit=501",
            "limit=ten",
            "limit=-1",
            "limit=%B2",
            "&".join(["a=1"] * 50),
        ):
            assert client.get(f"/jobs?{query}").status_code == 400, query


def test_of_many_at_once_one_is_new_and_other_content_conflicts(served: Served, number: str) -> None:
    bodies = [payload(number), payload(number, question="另一个？")]

    def post(turn: int) -> tuple[int, int]:
        with served.client() as client:
            return turn % 2, client.post("/jobs", json=bodies[turn % 2]).status_code

    with ThreadPoolExecutor(12) as threads:
        codes = list(threads.map(post, range(24)))
    (winner,) = [content for content, code in codes if code == 202]
    assert {code for content, code in codes if content == winner} == {200, 202}
    assert {code for content, code in codes if content != winner} == {409}
    kept = served.world.folders.open(f"query-c{number}-m{number}").read("payload.json")
    assert json.loads(kept or b"null") == bodies[winner]


# ---------------------------------------------------------------- refusals


def test_without_the_token_nothing_is_taken_or_shown(served: Served, number: str) -> None:
    body = payload(number)
    for token in (None, "wrong", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), f"{TOKEN} {TOKEN}"):
        with served.client(token) as client:
            for answer in (client.post("/jobs", json=body), client.get("/jobs"), client.get(f"/jobs/{body['taskId']}")):
                assert (answer.status_code, answer.json()["errorCode"]) == (401, "UNAUTHORIZED"), token
                assert answer.headers["WWW-Authenticate"] == "Bearer"
    with served.client(None) as client:
        basic = client.get("/jobs", headers={"Authorization": f"Basic {TOKEN}"})
        assert basic.status_code == 401
        assert client.get("/jobs", headers={"Authorization": f"bearer {TOKEN}"}).status_code == 200
    assert served.world.records.views.get(body["taskId"]) is None


@pytest.mark.parametrize(
    "content",
    [b"", b"no json", b"[]", b"null", b'{"a": NaN}', b"\xff\xfe", b"[" * 50_000, b'{"taskId": "query-1-1"}'],
    ids=["empty", "text", "array", "null", "NaN", "not UTF-8", "without end", "no fields"],
)
def test_what_is_no_payload_is_422(served: Served, content: bytes) -> None:
    with served.client() as client:
        answer = client.post("/jobs", content=content)
    assert answer.status_code == 422
    assert answer.json()["errorCode"] == "BAD_PAYLOAD"
    assert answer.json()["errors"]


def test_each_bad_field_is_named_and_no_secret_is_repeated(served: Served, number: str) -> None:
    bad = payload(number, taskId="query-other-1", question=f"{SECRET} ", deadlineSeconds=SECRET)
    with served.client() as client:
        answer = client.post("/jobs", json=bad)
    assert answer.status_code == 422
    assert "deadlineSeconds" in answer.json()["errors"][0]
    assert SECRET not in answer.text


def test_sixteen_mib_are_taken_and_no_byte_more(served: Served, number: str) -> None:
    small = json.dumps(payload(number)).encode()
    largest = small[:-1] + b" " * (16 * MIB - len(small)) + b"}"

    def pieces(content: bytes) -> Iterator[bytes]:
        yield from (content[at : at + MIB] for at in range(0, len(content), MIB))

    with served.client() as client:
        assert client.post("/jobs", content=largest).status_code == 202
        assert client.post("/jobs", content=pieces(largest)).status_code == 200
        for content in (largest + b" ", pieces(largest + b" " * MIB)):
            answer = client.post("/jobs", content=content)
            assert (answer.status_code, answer.json()["errorCode"]) == (413, "TOO_LARGE")


def test_a_client_that_asks_first_is_told_without_sending(served: Served) -> None:
    with served.raw() as sock:
        lines = ["POST /jobs HTTP/1.1", "Host: x", f"Authorization: Bearer {TOKEN}", "Expect: 100-continue"]
        sock.sendall(head(*lines, f"Content-Length: {17 * MIB}"))
        assert status_of(answered(sock)) == 413, "408 when it had waited for the body"


@pytest.mark.parametrize("token", [TOKEN, "wrong"])
def test_a_refused_client_that_stops_within_its_body_is_told_soon(served: Served, token: str) -> None:
    chunk = b"%x\r\n" % MIB + b" " * MIB + b"\r\n"
    with served.raw() as sock:
        lines = ["POST /jobs HTTP/1.1", "Host: x", f"Authorization: Bearer {token}", "Transfer-Encoding: chunked"]
        sock.sendall(head(*lines) + chunk * 19)  # too large already, and the last chunk never comes
        assert status_of(sock.recv(65_536)) == (413 if token == TOKEN else 401)


def test_wrong_methods_paths_and_encodings(served: Served) -> None:
    with served.client() as client:
        for method, path, allowed in [
            ("DELETE", "/jobs", "GET, HEAD, POST"),
            ("PUT", "/jobs/query-1-1", "GET, HEAD"),
            ("POST", "/jobs/query-1-1", "GET, HEAD"),
            ("OPTIONS", "/jobs", "GET, HEAD, POST"),
            ("POST", "/live", "GET, HEAD"),
        ]:
            answer = client.request(method, path)
            assert (answer.status_code, answer.headers["Allow"]) == (405, allowed), (method, path)
            assert answer.json()["errorCode"] == "METHOD_NOT_ALLOWED"
        for path in ("/", "/job", "/jobs2", "/docs", "/%2e%2e/etc/passwd"):
            answer = client.get(path)
            assert (answer.status_code, answer.json()["errorCode"]) == (404, "NOT_FOUND"), path
        assert client.post("/jobs", content=b"x", headers={"Content-Encoding": "gzip"}).status_code == 415


def test_head_answers_like_get_without_a_body(served: Served) -> None:
    with served.client() as client:
        for path in ("/jobs", "/live", "/jobs/none"):
            shown, asked = client.get(path), client.head(path)
            assert (asked.status_code, asked.content) == (shown.status_code, b"")


def test_probes_need_no_token(served: Served) -> None:
    with served.client(None) as client:
        assert (client.get("/live").status_code, client.get("/live").json()) == (200, {"ok": True})
        assert (client.get("/ready").status_code, client.get("/ready").json()) == (503, {"ok": False, "redis": False})
        metrics = client.get("/metrics")
    assert metrics.text == METRICS
    assert metrics.headers["Content-Type"].startswith("text/plain; version=0.0.4")


def test_a_share_that_is_away_is_503_and_to_be_tried_again(server_url: str, tmp_path: Path) -> None:
    world = WaysIn(server_url, tmp_path / "unmounted")
    answer = JobsApi(world.intake, world.records.views, world.refusals, world.mask).submit(
        json.dumps(payload(1)).encode(), ""
    )
    assert (answer.status, answer.headers["Retry-After"]) == (503, "5")
    assert json.loads(answer.body)["errorCode"] == "RESULT_DIR_MISSING"
    assert world.records.views.get("query-c1-m1") is None


@pytest.mark.parametrize("result_file", ["gone/r.json", "../outside.json"])
def test_a_finished_job_is_known_even_if_its_result_file_cannot_be_written(served: Served, result_file: str) -> None:
    body = payload(f"file{len(result_file)}")
    with served.client() as client:
        client.post("/jobs", json=body)
        served.world.finish(body["taskId"])
        again = client.post("/jobs", json={**body, "resultFile": result_file})
    assert (again.status_code, again.json()) == (200, {"taskId": body["taskId"], "state": "done"})


def test_redis_that_is_away_is_503_everywhere(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        world = WaysIn(f"redis://127.0.0.1:{unused.getsockname()[1]}/0", tmp_path)
        api = JobsApi(world.intake, world.records.views, world.refusals, world.mask)
        for answer in (api.submit(json.dumps(payload(1)).encode(), ""), api.show("query-c1-m1"), api.listing("", "")):
            assert answer.status == 503
            assert json.loads(answer.body)["errorCode"] == "UNAVAILABLE"


# ---------------------------------------------------------------- clients that mean no good


@pytest.mark.parametrize(
    "lines",
    [
        ["POST /jobs HTTP/1.1", "Host: x", "Content-Length: -1"],
        ["POST /jobs HTTP/1.1", "Host: x", "Content-Length: ten"],
        ["POST /jobs HTTP/1.1", "Host: x", "Content-Length: 5", "Content-Length: 6"],
        ["POST /jobs HTTP/1.1", "Host: x", "Transfer-Encoding: gzip, chunked"],
        ["GET /jobs HTTP/1.1"],
        ["GET /jobs HTTP/1.1", "Host: x", "Host: y"],
        ["POST /jobs HTTP/1.1", "Host: x", "Transfer-Encoding: chunked", "Content-Length: 4"],
        ["\x16\x03\x01 TLS hello"],
        ["GET /jobs HTTP/1.1", "Host: x", "Bad Header : y"],
    ],
)
def test_what_is_no_http_is_400_in_json(served: Served, lines: list[str]) -> None:
    with served.raw() as sock:
        sock.sendall(head(*lines))
        raw = answered(sock)
    assert status_of(raw) in (400, 501), raw[:200]
    assert json.loads(raw.partition(b"\r\n\r\n")[2])["errorCode"] == "BAD_REQUEST"


def test_length_and_chunks_at_once_are_not_two_requests(served: Served) -> None:
    smuggled = b"GET /jobs HTTP/1.1\r\nHost: x\r\n\r\n"
    with served.raw() as sock:
        lines = ["POST /live HTTP/1.1", "Host: x", "Transfer-Encoding: chunked", "Content-Length: 4"]
        sock.sendall(head(*lines) + b"0\r\n\r\n" + smuggled)
        raw = answered(sock)
    assert raw.count(b"HTTP/1.1 ") == 1, "what follows is not read as a request"
    assert status_of(raw) == 400


def test_a_flood_of_headers_is_431(served: Served) -> None:
    with served.raw() as sock:
        sock.sendall(b"GET /live HTTP/1.1\r\nHost: x\r\n" + b"".join(b"X-%d: y\r\n" % n for n in range(8_000)))
        assert status_of(answered(sock)) == 431


def test_a_head_that_drips_in_is_cut_off_in_time(hasty: Served) -> None:
    with hasty.raw() as sock:
        gone = False
        for byte in b"GET /live HTTP/1.1\r\nHost: " + b"x" * 100:
            try:
                sock.sendall(bytes([byte]))
            except OSError:
                gone = True
                break
            time.sleep(0.05)
        assert gone


def test_a_body_that_drips_in_is_408(hasty: Served) -> None:
    with hasty.raw() as sock:
        lines = ["POST /jobs HTTP/1.1", "Host: x", f"Authorization: Bearer {TOKEN}", "Content-Length: 1000"]
        sock.sendall(head(*lines) + b"{")
        sock.settimeout(0.2)
        raw, limit = b"", time.monotonic() + 60
        while not raw and time.monotonic() < limit:
            sock.sendall(b" ")
            try:
                raw = sock.recv(65_536)
            except TimeoutError:
                continue
    assert status_of(raw) == 408


def test_a_second_request_on_a_kept_connection_has_its_own_time(hasty: Served) -> None:
    ask = head("GET /live HTTP/1.1", "Host: x")
    with hasty.raw() as sock:
        for _ in range(3):
            sock.sendall(ask)
            raw = b""
            while b'{"ok": true}' not in raw:
                raw += sock.recv(65_536)
            time.sleep(1.3)  # longer than a head may take: an idle connection is no slow one
        began = time.monotonic()
        sock.sendall(ask[:10])
        assert answered(sock) == b""
        assert time.monotonic() - began > 0.5


def test_a_client_that_reads_no_answer_is_let_go(hasty: Served) -> None:
    with hasty.raw() as sock, hasty.client() as client:
        sock.sendall(head("GET /metrics HTTP/1.1", "Host: x") * 100)
        assert client.get("/live").status_code == 200  # so the others have come, too
        limit = time.monotonic() + HastyProtocol.request_s + 2.0
        while time.monotonic() < limit:
            assert client.get("/live").status_code == 200, "others are served meanwhile"
            time.sleep(0.2)
        assert len(answered(sock)) < 100 * len(METRICS)


def test_many_idle_connections_do_not_keep_others_out_for_long(hasty: Served) -> None:
    idle = [hasty.raw() for _ in range(40)]
    try:
        time.sleep(1.5)  # the time for a head is over: they are gone, or soon will be
        limit = time.monotonic() + 60
        while not is_served(hasty):
            assert time.monotonic() < limit
        assert [answered(sock) for sock in idle] == [b""] * 40
    finally:
        for sock in idle:
            sock.close()


def is_served(by: Served) -> bool:
    with by.client() as client, suppress(httpx.TransportError):
        return client.get("/live").status_code == 200
    return False


def test_a_client_that_hangs_up_within_its_body_records_nothing(served: Served, number: str) -> None:
    content = json.dumps(payload(number)).encode()
    with served.raw() as sock:
        lines = ["POST /jobs HTTP/1.1", "Host: x", f"Authorization: Bearer {TOKEN}", f"Content-Length: {len(content)}"]
        sock.sendall(head(*lines) + content[:-5])
    time.sleep(0.3)
    assert served.world.records.views.get(f"query-c{number}-m{number}") is None


def test_logs_hold_neither_tokens_nor_questions(served: Served, number: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), served.client() as client, served.client("wrong-token-zz") as stranger:
        client.post("/jobs", json=payload(number, question="绝密问题"))
        client.post("/jobs", json=payload(number, question="绝密改动"))
        client.post("/jobs", json={"question": "绝密残缺"})
        stranger.post("/jobs", json=payload(number))
    told = "\n".join(f"{record.getMessage()} {record.__dict__.get('kbw', '')}" for record in caplog.records)
    assert "rejected" in told
    ours = "\n".join(line for line in told.splitlines() if not line.startswith(("send_request", "receive_response")))
    assert "绝密" not in ours
    assert TOKEN not in ours
    assert "wrong-token-zz" not in ours


def test_a_taken_port_is_tried_again(served: Served) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        world, port = served.world, holder.getsockname()[1]
        jobs = JobsApi(world.intake, world.records.views, world.refusals, world.mask)
        probes = Probes(live=lambda: Probe(ok=True), ready=lambda: Probe(ok=True), metrics=str)
        server, stop = HttpServer(Address("127.0.0.1", port), jobs, probes, TOKEN, rebind_s=0.1), Event()
        thread = Thread(target=server.run, args=(stop,))
        thread.start()
        time.sleep(0.4)
        assert server.bound is None
    limit = time.monotonic() + 60
    while server.bound is None:
        assert time.monotonic() < limit
        time.sleep(0.02)
    stop.set()
    thread.join(60)
    assert not thread.is_alive()


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:8765", Address("127.0.0.1", 8765)),
        ("[::1]:80", Address("::1", 80)),
        (":80", Address("0.0.0.0", 80)),
        ("localhost:0", Address("localhost", 0)),
    ],
)
def test_addresses(text: str, address: Address) -> None:
    assert read_address(text) == address


@pytest.mark.parametrize("text", ["", "8765", "host:", "host:port", "host:99999", "host:-1", "host:８０"])
def test_what_is_no_address_is_said(text: str) -> None:
    with pytest.raises(ValueError, match="host:port"):
        read_address(text)
