"""The connection to the model: bounded in time and size, honest about its faults, shared by threads and processes."""

from __future__ import annotations

import multiprocessing
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from tasks.errors import Code, PermanentError, TransientError
from tests import scripted_model as scripted
from tests.certificates import own_authority
from tests.fakes_model import StillClock
from tests.model_calls import CALL, DRIVERS, config, failure
from worker.adapters.model.factory import ProbedDriver, build_driver


def test_silence_ends_at_the_timeout(driver: ProbedDriver, server: scripted.ScriptedModel) -> None:
    server.play(scripted.hanging())
    began = time.monotonic()
    error = failure(driver, replace(CALL, timeout=0.5))
    assert isinstance(error, TransientError)
    assert "in time" in error.en
    assert time.monotonic() - began < 60


def test_a_server_that_drips_bytes_is_cut_off(driver: ProbedDriver, server: scripted.ScriptedModel) -> None:
    """Each byte comes well within the read timeout; only the wall clock ends this, in the head already."""
    server.play(scripted.completion("好", drip_s=0.1))
    began = time.monotonic()
    error = failure(driver, replace(CALL, timeout=0.6))
    assert isinstance(error, TransientError)
    assert "in time" in error.en
    assert time.monotonic() - began < 60


def test_a_slow_reply_within_the_timeout_is_a_reply(driver: ProbedDriver, server: scripted.ScriptedModel) -> None:
    server.play(scripted.completion("好", delay_s=0.5))
    assert driver.complete(CALL).text == "好"


def test_no_time_left_means_no_request(driver: ProbedDriver, server: scripted.ScriptedModel) -> None:
    assert isinstance(failure(driver, replace(CALL, timeout=0)), TransientError)
    assert server.chats == []


def test_a_reply_beyond_the_size_cap_is_refused(server: scripted.ScriptedModel, clock: StillClock) -> None:
    built = build_driver(config("openai", server.url, max_reply_bytes=100_000), clock)
    server.play(scripted.huge(200_000), scripted.huge(50_000))
    error = failure(built)
    assert (type(error), error.code) == (PermanentError, Code.MODEL_UNREACHABLE)
    assert len(built.complete(CALL).text) == 50_000


@pytest.mark.parametrize("name", DRIVERS)
def test_a_server_that_is_down_is_named_with_its_setting(name: str, clock: StillClock) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        error = failure(build_driver(config(name, f"http://127.0.0.1:{port}"), clock))
    assert (type(error), error.code) == (TransientError, Code.MODEL_UNREACHABLE)
    assert f"127.0.0.1:{port}" in error.en
    assert "Connection refused" in error.en
    assert ("OPENCLAW_GATEWAY_URL" if name == "openclaw" else "KBW_LLM_BASE_URL") in error.zh


def test_a_server_without_tls_behind_https_is_said_to_be_so(server: scripted.ScriptedModel, clock: StillClock) -> None:
    error = failure(build_driver(config("openai", server.url.replace("http:", "https:")), clock))
    assert isinstance(error, TransientError)
    assert "TLS" in error.en


def test_an_untrusted_certificate_is_permanent_and_a_given_authority_is_trusted(
    tmp_path: Path, clock: StillClock
) -> None:
    context, certificate = own_authority(tmp_path)
    with scripted.ScriptedModel(scripted.always(scripted.completion("好")), tls=context) as server:
        error = failure(build_driver(config("openai", server.url), clock))
        assert (type(error), error.code) == (PermanentError, Code.MODEL_UNREACHABLE)
        assert "certificate" in error.en
        trusting = build_driver(config("openai", server.url, ca_file=str(certificate)), clock)
        assert trusting.complete(CALL).text == "好"
        server.play(scripted.completion("好", drip_s=0.05))
        assert "in time" in failure(trusting, replace(CALL, timeout=0.6)).en, "the wall clock holds under TLS too"


def test_proxies_of_the_environment_are_ignored_and_a_configured_one_is_used(
    server: scripted.ScriptedModel, clock: StillClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert build_driver(config("openai", server.url), clock).complete(CALL).text == "好"
    through = build_driver(config("openai", "http://model.example", proxy=server.url), clock)
    server.routes["http://model.example/v1/chat/completions"] = scripted.always(scripted.completion("经代理"))
    assert through.complete(CALL).text == "经代理"


def test_many_threads_share_one_driver(driver: ProbedDriver, server: scripted.ScriptedModel) -> None:
    server.rule = lambda request: scripted.completion(request.message("user"), delay_s=0.2)
    calls = [replace(CALL, user=f"问题 {n}") for n in range(8)]
    before = threading.active_count()
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(driver.complete, calls))
    assert [reply.text for reply in replies] == [call.user for call in calls]
    assert server.in_flight_max > 1
    assert threading.active_count() < before + 20, "no watchdog is left behind"


def test_a_driver_works_on_both_sides_of_a_fork(driver: ProbedDriver) -> None:
    assert driver.complete(CALL).text == "好"
    fork = multiprocessing.get_context("fork")
    said = fork.SimpleQueue()
    child = fork.Process(target=lambda: said.put(driver.complete(CALL).text), daemon=True)
    child.start()
    child.join(240)
    assert child.exitcode == 0
    assert said.get() == "好"
    assert driver.complete(CALL).text == "好"


def test_a_closed_driver_can_be_used_again(driver: ProbedDriver) -> None:
    driver.complete(CALL)
    driver.close()
    driver.close()
    assert driver.complete(CALL).text == "好"
