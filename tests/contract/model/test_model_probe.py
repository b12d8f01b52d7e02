"""What ``kbw doctor`` learns about a model endpoint, without asking the model anything."""

from __future__ import annotations

from tests import scripted_model as scripted
from tests.fakes_model import StillClock
from tests.model_calls import SWITCH, TOKEN, config
from worker.adapters.model.factory import ProbedDriver, build_driver


def cures(driver: ProbedDriver) -> str:
    return "\n".join(f"{finding.level} {finding.message} → {finding.cure}" for finding in driver.probe())


def test_a_good_endpoint_probes_clean_without_a_model_call(
    driver: ProbedDriver, server: scripted.ScriptedModel
) -> None:
    server.models = ["openclaw", "openclaw/default", "openclaw/kb", "scripted-1"]
    assert [finding.level for finding in driver.probe()] == ["ok"] * (3 if driver.name == "openclaw" else 2)
    assert all(request.method == "GET" for request in server.requests)
    ready = [request for request in server.requests if request.path == "/readyz"]
    assert all("authorization" not in request.headers for request in ready)


def test_a_missing_model_is_named(driver: ProbedDriver, server: scripted.ScriptedModel) -> None:
    server.models = ["openclaw/main"]
    said = cures(driver)
    assert ("KBW_OPENCLAW_AGENT" if driver.name == "openclaw" else "KBW_LLM_MODEL") in said


def test_a_chat_endpoint_that_is_off_is_named_with_the_switch(
    driver: ProbedDriver, server: scripted.ScriptedModel
) -> None:
    server.routes["/v1/chat/completions"] = scripted.always(scripted.plain(404, "Not Found"))
    assert (SWITCH if driver.name == "openclaw" else "KBW_LLM_BASE_URL") in cures(driver)


def test_a_wrong_token_is_found_without_a_model_call(server: scripted.ScriptedModel, clock: StillClock) -> None:
    server.token = "another"
    said = cures(build_driver(config("openclaw", server.url), clock))
    assert "set OPENCLAW_GATEWAY_TOKEN" in said
    assert TOKEN not in said


def test_a_gateway_that_still_starts_is_told_apart(server: scripted.ScriptedModel, clock: StillClock) -> None:
    server.routes["/readyz"] = scripted.always(scripted.Reply(status=503, body=b'{"ready":false}'))
    assert "not ready" in cures(build_driver(config("openclaw", server.url), clock))


def test_the_list_may_be_nonsense(driver: ProbedDriver, server: scripted.ScriptedModel) -> None:
    for body in (b"[]", b'{"data":7}', b'{"data":[7,{"id":7}]}', b"<html>", b"\xff"):
        server.routes["/v1/models"] = scripted.always(scripted.Reply(body=body))
        assert driver.probe()[-1].level != "ok"
