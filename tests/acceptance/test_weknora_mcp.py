"""The real ``tencent-weknora-mcp`` from PyPI, in an environment of its own, before the stand-in of WeKnora's REST."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tasks.knowledge.found import Status
from tests.fakes_knowledge import environment, spec
from tests.ports import free_port
from tests.weknora_server import RETRIEVE_KEY, Base, WeknoraServer
from worker.adapters.weknora.mcp import WeknoraMcp
from worker.adapters.weknora.mcp_session import McpServer, McpSession
from worker.clock import SystemClock
from worker.mounted_weknora import WeknoraSource, over_mcp
from worker.outbound import AllowedHosts, Outbound

pytestmark = [pytest.mark.acceptance, pytest.mark.enable_socket, pytest.mark.timeout(600)]
PACKAGE = "tencent-weknora-mcp==1.1.1"
INSTALL_S = 120.0
TOKEN = "mcp-token-41d7"
KB = "MCN极致事件素材库"
CARD = {
    "standard_question": "被当场刁难的人用一连串专业细节把对方顶回去",
    "answers": ["编号：28325-3\n内容含义：被刁难的摊主用专业细节反击", "第二份"],
}
ASKED = "被当场刁难的人，用一连串专业细节一步步把对方顶回去"


@pytest.fixture(scope="session")
def mcp_command() -> Path:
    """The package's command in a venv that stays for the next run (its ``mcp`` pin must not constrain ours)."""
    place = Path(tempfile.gettempdir()) / f"kbw-tests-{os.getuid()}" / re.sub(r"\W+", "-", PACKAGE)
    command = place / "bin" / "weknora-mcp-server"
    if not command.exists():
        # our own pip installs into the new environment: one less thing to bring there
        pip = [sys.executable, "-m", "pip", "--python", str(place / "bin" / "python"), "install", "-q", PACKAGE]
        for step in ([sys.executable, "-m", "venv", "--clear", "--without-pip", str(place)], pip):
            if told := _refusal(step):
                pytest.skip(f"{PACKAGE} cannot be installed here: {told}")
    return command


def _refusal(step: list[str]) -> str:
    """Why a step of the installation did not end well; a slow index is a reason too."""
    try:
        done = subprocess.run(step, capture_output=True, text=True, check=False, timeout=INSTALL_S)
    except subprocess.TimeoutExpired:
        return f"not ready after {INSTALL_S:.0f} s"
    return (done.stderr.strip()[-200:] or f"exit code {done.returncode}") if done.returncode else ""


@pytest.fixture
def server() -> Iterator[WeknoraServer]:
    with WeknoraServer() as found:
        found.add(Base(KB), CARD)
        yield found


@contextmanager
def mcp_http(command: Path, weknora_url: str, port: int, log: Path) -> Iterator[str]:
    environment = {
        "PATH": os.environ["PATH"],
        "WEKNORA_BASE_URL": weknora_url,
        "WEKNORA_API_KEY": RETRIEVE_KEY,
        "MCP_SERVER_AUTH_TOKEN": TOKEN,
    }
    arguments = [str(command), "--transport", "http", "--host", "127.0.0.1", "--port", str(port)]
    with log.open("ab") as out:
        process = subprocess.Popen(arguments, env=environment, stdout=out, stderr=out)
    try:
        _wait(lambda: _open(port), 60.0, log)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait(10)


def _open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _wait(condition: Callable[[], bool], patience: float, log: Path) -> None:
    limit = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < limit, log.read_text("utf-8")[-2000:]
        time.sleep(0.05)


@contextmanager
def searching(server: McpServer) -> Iterator[WeknoraMcp]:
    session = McpSession(server)
    try:
        yield WeknoraMcp(session, SystemClock())
    finally:
        session.close()


def test_over_http_every_row_of_the_matrix_is_told_apart(
    mcp_command: Path, server: WeknoraServer, tmp_path: Path
) -> None:
    with (
        mcp_http(mcp_command, server.url, free_port(), tmp_path / "mcp.log") as url,
        searching(McpServer(url=url, token=TOKEN)) as weknora,
    ):
        found = weknora.find(KB, ASKED, timeout=60)
        assert (found.status, [hit.content for hit in found.hits]) == (Status.HIT, [CARD["answers"][0]])
        request = server.searches()[-1].document
        assert (request["match_count"], request["vector_threshold"]) == (3, 0.5)
        assert weknora.find(KB, "一句话让所有人都沉默了", timeout=60).status is Status.ZERO_HIT
        assert weknora.find("没有的库", ASKED, timeout=60).status is Status.KB_NOT_FOUND
        with server.trapped(search_fails=True):
            assert weknora.find(KB, ASKED, timeout=60).status is Status.UNAVAILABLE
        with server.trapped(status=500):
            assert weknora.find(KB, ASKED, timeout=60).status is Status.UNAVAILABLE
        with server.trapped(html=True):
            assert weknora.find(KB, ASKED, timeout=60).status is Status.UNAVAILABLE
        with server.trapped(hang_s=40.0):
            started = time.monotonic()
            assert weknora.find(KB, ASKED, timeout=1.0).status is Status.TIMEOUT
            assert time.monotonic() - started < 30
        assert weknora.find(KB, ASKED, timeout=60).status is Status.HIT
    tools = {call.path for call in server.calls}
    assert not [path for path in tools if "chat" in path]


def test_as_a_mounted_source_it_is_one_like_any_other(mcp_command: Path, server: WeknoraServer, tmp_path: Path) -> None:
    clock = SystemClock()
    outbound = Outbound(AllowedHosts(("127.0.0.1",)), clock.monotonic)
    with mcp_http(mcp_command, server.url, free_port(), tmp_path / "mcp.log") as url:
        found = {}
        for base, token in ((KB, TOKEN), ("没有的库", TOKEN), (KB, "wrong-token")):
            headers = {"Authorization": "Bearer {{env.KB_MCP}}"}
            asked = spec(endpoint=url, adapter="weknora_mcp", request={"kb_id": base}, headers=headers, timeout=60)
            source = WeknoraSource(asked, over_mcp, environment(KB_MCP=token), outbound, clock)
            found[base, token] = source.search(ASKED)
    outbound.close()
    assert [hit.content for hit in found[KB, TOKEN].hits] == [CARD["answers"][0]]
    assert [one.status for one in found.values()] == [Status.HIT, Status.KB_NOT_FOUND, Status.UNAUTHORIZED]


def test_a_wrong_token_and_a_dead_server(mcp_command: Path, server: WeknoraServer, tmp_path: Path) -> None:
    port = free_port()
    with (
        mcp_http(mcp_command, server.url, port, tmp_path / "mcp.log") as url,
        searching(McpServer(url=url, token="wrong-token")) as weknora,
    ):
        assert weknora.find(KB, ASKED, timeout=60).status is Status.UNAUTHORIZED
    with searching(McpServer(url=f"http://127.0.0.1:{port}/mcp", token=TOKEN)) as weknora:
        assert weknora.find(KB, ASKED, timeout=10).status is Status.UNAVAILABLE


def test_a_session_survives_a_restart_of_the_server(mcp_command: Path, server: WeknoraServer, tmp_path: Path) -> None:
    port, log = free_port(), tmp_path / "mcp.log"
    with searching(McpServer(url=f"http://127.0.0.1:{port}/mcp", token=TOKEN)) as weknora:
        with mcp_http(mcp_command, server.url, port, log):
            assert weknora.find(KB, ASKED, timeout=60).status is Status.HIT
        assert weknora.find(KB, ASKED, timeout=5).status is Status.UNAVAILABLE
        with mcp_http(mcp_command, server.url, port, log):
            assert weknora.find(KB, ASKED, timeout=60).status is Status.HIT


def test_over_stdio(mcp_command: Path, server: WeknoraServer) -> None:
    environment = {"WEKNORA_BASE_URL": server.url, "WEKNORA_API_KEY": RETRIEVE_KEY}
    stdio = McpServer(command=f"{mcp_command} --transport stdio", environment=environment)
    with searching(stdio) as weknora:
        assert weknora.find(KB, ASKED, timeout=60).status is Status.HIT
        assert weknora.find("没有的库", ASKED, timeout=60).status is Status.KB_NOT_FOUND
    with searching(McpServer(command="/no/such/command")) as weknora:
        assert weknora.find(KB, ASKED, timeout=60).status is Status.MISCONFIGURED
