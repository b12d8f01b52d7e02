"""What WeKnora's REST answers mean: both shapes of its errors, and 200s that are no answer of it."""

from __future__ import annotations

from typing import Any

import pytest

from tasks.contract import strict_json
from tasks.knowledge.found import Status
from worker.adapters.weknora.results import WeknoraFault, body_of


def app_error(code: int | str) -> dict[str, Any]:
    return {"success": False, "error": {"code": code, "message": "…", "details": None}}


@pytest.mark.parametrize(
    ("http", "document", "status"),
    [
        (401, {"error": "Unauthorized: invalid API key"}, Status.UNAUTHORIZED),
        (403, {"error": "Forbidden: API key scope does not allow this operation"}, Status.UNAUTHORIZED),
        (404, app_error(1003), Status.KB_NOT_FOUND),
        (404, app_error("1003"), Status.KB_NOT_FOUND),
        (404, app_error("NOT_FOUND"), Status.KB_NOT_FOUND),  # as the documentation has it
        (404, "404 page not found", Status.BAD_RESPONSE),
        (404, {"error": "no route"}, Status.BAD_RESPONSE),
        (400, app_error("BAD_REQUEST"), Status.MISCONFIGURED),
        (400, app_error(1000), Status.MISCONFIGURED),
        (500, app_error(1007), Status.UNAVAILABLE),
        (503, app_error(2201), Status.UNAVAILABLE),
        (502, "<html>", Status.UNAVAILABLE),
        (504, app_error(1009), Status.TIMEOUT),
        (200, app_error(1003), Status.KB_NOT_FOUND),
        (200, {"success": False}, Status.BAD_RESPONSE),
        (200, {"success": "true", "data": None}, Status.BAD_RESPONSE),
        (200, {"error": "vector store is down"}, Status.BAD_RESPONSE),
        (200, {"data": None, "error": "vector store is down"}, Status.BAD_RESPONSE),
        (200, {"message": "welcome"}, Status.BAD_RESPONSE),
        (200, [], Status.BAD_RESPONSE),
    ],
)
def test_a_failure_is_its_status_whatever_the_http_code_says(http: int, document: Any, status: Status) -> None:
    with pytest.raises(WeknoraFault) as fault:
        body_of(http, strict_json.dumps(document), "hybrid-search")
    assert fault.value.status is status


@pytest.mark.parametrize(
    "document", [{"success": True, "data": None}, {"success": True, "data": [], "error": None}, {"data": [{}]}]
)
def test_success_is_what_says_so(document: dict[str, Any]) -> None:
    assert body_of(200, strict_json.dumps(document), "hybrid-search") == document
