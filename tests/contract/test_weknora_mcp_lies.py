"""An MCP server that lies: a status in time, no redirect followed, nothing unpacked, nothing of it in a log."""

from __future__ import annotations

import gzip
import json
import time
from pathlib import Path

import pytest

from tasks.knowledge.found import Status
from tests.certificates import own_authority
from tests.fakes_knowledge import Asked, Said, said, service, silent_service
from worker.adapters.weknora.mcp import WeknoraMcp
from worker.adapters.weknora.mcp_session import McpServer, McpSession
from worker.clock import SystemClock
from worker.log import set_up_logging
from worker.masking import SecretMask

for module in ("mcp", "mcp.client.stdio", "mcp.client.streamable_http"):  # imported now: it takes seconds under load
    pytest.importorskip(module, reason="extra mcp is not installed")

CARD = "周铁锅把对方的外行话一句句拆穿"
CLOCK = SystemClock()


def ask(url: str, timeout: float = 30.0) -> tuple[Status, str]:
    session = McpSession(McpServer(url=f"{url}/mcp", token="t0k3n"))
    try:
        found = WeknoraMcp(session, CLOCK).find("库", "问", timeout=timeout)
    finally:
        session.close()
    return found.status, found.detail


ZIPPED = gzip.compress(json.dumps({"jsonrpc": "2.0", "id": 0, "result": "x" * 50_000_000}).encode())
LIES = {
    "page": (Said(body=b"<html>log in</html>", content_type="text/html"), "neither JSON"),
    "redirect": (Said(307, headers={"location": "/stolen"}), "redirect"),
    "redirect inside": (Said(302, headers={"location": "http://169.254.169.254/latest"}), "redirect"),
    "bomb": (Said(body=ZIPPED, headers={"content-encoding": "gzip"}), "compressed"),
    "huge": (Said(body=b'"' + b"x" * 9_000_000 + b'"'), "more than 8 MiB"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_a_bad_response_that_says_what_came(lie: str) -> None:
    answer, told = LIES[lie]
    with service(answer) as there:
        status, detail = ask(there.url)

    assert (status, told in detail) == (Status.BAD_RESPONSE, True), detail
    assert {request.path for request in there.asked} == {"/mcp"}, "no redirect is followed"


@pytest.fixture
def _logging() -> None:
    set_up_logging(SecretMask([]), "text", "INFO")


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (Said(401), Status.UNAUTHORIZED),
        (Said(500, CARD.encode()), Status.UNAVAILABLE),
        (Said(body=f'{{"half {CARD}'.encode()), Status.UNAVAILABLE),
        (said({"jsonrpc": "2.0", "id": "other", "error": {"code": -1, "message": CARD}}), Status.TIMEOUT),
        (said({"jsonrpc": "2.0", "id": "other", "result": {"text": CARD}}), Status.TIMEOUT),
    ],
)
@pytest.mark.usefixtures("_logging")
def test_what_a_server_says_is_in_no_detail_and_no_log(
    capsys: pytest.CaptureFixture[str], answer: Said, status: Status
) -> None:
    with service(answer) as there:
        told = ask(there.url, timeout=3.0 if status is Status.TIMEOUT else 30.0)

    assert told[0] == status
    shown = capsys.readouterr()
    assert CARD[:6] not in told[1] + shown.out + shown.err
    assert "input_value" not in shown.err, "the SDK's own words about a body"


def test_a_silent_server_costs_the_deadline_and_no_more() -> None:
    started = time.monotonic()
    with silent_service() as port:
        status, _ = ask(f"http://127.0.0.1:{port}", timeout=1.0)

    assert status == Status.TIMEOUT
    assert time.monotonic() - started < 30.0


def test_a_handshake_that_never_ends_is_given_up_and_tried_anew() -> None:
    with service(said({"jsonrpc": "2.0", "id": "other", "result": {}})) as there:
        session = McpSession(McpServer(url=f"{there.url}/mcp"), connect_s=3.0)
        found, asked = [], [0]
        try:
            for _ in range(2):
                found.append(WeknoraMcp(session, CLOCK).find("库", "问", timeout=20.0).status)
                asked.append(len(there.asked))
        finally:
            session.close()

    assert found == [Status.UNAVAILABLE] * 2
    assert asked[0] < asked[1] < asked[2], "each call connects anew"


def test_an_authority_of_the_operator_is_trusted_when_ssl_cert_file_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tls, certificate = own_authority(tmp_path)
    with service(Said(401), tls=tls) as there:
        status, detail = ask(there.url)
        assert (status, "certificate" in detail, there.asked) == (Status.UNAVAILABLE, True, [])
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert ask(there.url)[0] == Status.UNAUTHORIZED


def test_every_request_carries_the_token_and_asks_for_no_compression() -> None:
    def refuse(request: Asked) -> Said:
        assert request.headers["authorization"] == "Bearer t0k3n"
        assert request.headers["accept-encoding"] == "identity"
        return Said(401)

    with service(refuse) as there:
        assert ask(there.url)[0] == Status.UNAUTHORIZED
    assert there.asked
