"""Logs: one line an event, fields and traces included, never a secret."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from worker.log import set_up_logging
from worker.masking import MASK, SecretMask

SECRET = "tok-3f9a17c2"
log = logging.getLogger("kbw.test")


def lines(capsys: pytest.CaptureFixture[str], form: Any, work: Any, level: str = "INFO") -> list[str]:
    set_up_logging(SecretMask([SECRET]), form, level)
    work()
    return capsys.readouterr().err.splitlines()


class Odd:
    """Something that is no JSON, with a secret in its text."""

    def __str__(self) -> str:
        return f"odd {SECRET}"


def crash() -> None:
    try:
        raise ValueError(f"bad {SECRET}")
    except ValueError:
        log.exception("stage.crashed", extra={"kbw": {"task_id": "query-1-2"}})


def test_an_event_is_one_json_line_with_its_fields(capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = lines(capsys, "json", lambda: log.info("park", extra={"kbw": {"task_id": "query-1-2", "ms": 7}}))

    found = json.loads(line)
    assert (found["event"], found["level"], found["task_id"], found["ms"]) == ("park", "INFO", "query-1-2", 7)
    assert found["at"].endswith("Z")


def test_a_line_for_people_says_time_and_event_once(capsys: pytest.CaptureFixture[str]) -> None:
    fields = {"task_id": "query-1-2", "at": "2026-11-30T20:29:47Z", "event": "park", "ms": 7}
    (line,) = lines(capsys, "text", lambda: log.info("park", extra={"kbw": fields}))

    assert line.split(maxsplit=1)[1] == "INFO    park task_id=query-1-2 ms=7"


@pytest.mark.parametrize("form", ["json", "text"])
def test_no_secret_is_logged_in_any_place(capsys: pytest.CaptureFixture[str], form: str) -> None:
    def work() -> None:
        log.warning("%s in the message", SECRET)
        log.warning("fields", extra={"kbw": {SECRET: SECRET, "odd": Odd(), "path": Path(SECRET), "list": [SECRET]}})
        crash()

    told = "\n".join(lines(capsys, form, work))

    assert SECRET not in told
    assert told.count(MASK) >= 5


def test_a_trace_stays_within_its_json_line(capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = lines(capsys, "json", crash)

    assert "ValueError" in json.loads(line)["trace"]


def test_libraries_speak_only_from_warnings_on(capsys: pytest.CaptureFixture[str]) -> None:
    def work() -> None:
        logging.getLogger("httpx").info("GET https://…")
        logging.getLogger("httpx2").info("POST https://…")
        logging.getLogger("celery").warning("broker away")
        logging.getLogger("mcp.client.streamable_http").error("Error parsing: input_value=b'a card'")

    assert [json.loads(line)["event"] for line in lines(capsys, "json", work)] == ["broker away"]


def test_text_that_no_terminal_can_show_stops_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(lines(capsys, "json", lambda: log.info("odd", extra={"kbw": {"reason": "半 \ud800 个"}}))) == 1
