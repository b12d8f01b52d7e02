"""A mounted source in a whole job: real process of services, real git, scripted model; one source lies, one is down."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.acceptance.system import System, running_system
from tests.fakes_knowledge import Asked, Said, said, service
from worker.cli import main

pytestmark = pytest.mark.acceptance

SECRET = "s3cr3t-kb-value"
SOURCES = """\
knowledge:
  - &source
    id: good
    provider_type: SEMANTIC_API
    config: &config
      endpoint: {good}
      method: POST
      timeout: 10
      retry: 0
      headers: {{Authorization: "Bearer {{{{env.KB_TOKEN}}}}"}}
    injection: {{target_variable: context_knowledge, max_tokens: 300, format: markdown}}
  - <<: *source
    id: lying
    config: {{<<: *config, endpoint: "{lying}", fallback: [good]}}
  - <<: *source
    id: down
    config: {{<<: *config, endpoint: "http://127.0.0.1:1"}}
"""
MOUNTS = "pipelines: {kb_query: {answer: {knowledge_ref: [good, lying, down]}}}\n"


@pytest.fixture
def system(tmp_path: Path) -> Iterator[System]:
    with running_system(tmp_path) as found:
        yield found


def kbw(system: System, *arguments: object, **changes: str) -> Result:
    return CliRunner().invoke(main, [str(part) for part in arguments], env={**system.environment, **changes})


def test_a_job_uses_what_answers_tells_what_does_not_and_keeps_the_secret(system: System) -> None:
    def echo(request: Asked) -> Said:
        return said({"records": [{"content": f"外部说法甲 {request.headers['authorization']}", "title": "题"}]})

    html = Said(body=b"<html>please log in</html>", content_type="text/html")
    with service(echo) as good, service(html) as lying:
        files = {"KBW_KNOWLEDGE_FILE": SOURCES.format(good=good.url, lying=lying.url), "KBW_PIPELINES_FILE": MOUNTS}
        changes = {"KBW_KNOWLEDGE_ALLOWED_HOSTS": "127.0.0.1", "KB_TOKEN": SECRET}
        for name, text in files.items():
            path = system.home / f"{name.lower()}.yaml"
            path.write_text(text, "utf-8")
            changes[name] = str(path)
        payload = system.home / "payload.json"
        payload.write_text(json.dumps(system.payload(1), ensure_ascii=False), "utf-8")

        told = kbw(system, "run", payload, **changes)

    assert told.exit_code == 0, told.stderr
    result: Any = system.result("query-c1-m1")
    assert result["degraded"] == [
        {"stage": "answer", "source": "lying", "status": "BAD_RESPONSE"},
        {"stage": "answer", "source": "down", "status": "UNAVAILABLE"},
    ]
    assert len(good.asked) == 2
    assert good.asked[0].json == {"query": system.payload(1)["question"]}
    folder = system.shared / ".kbw" / "jobs" / "query-c1-m1"
    context = json.loads((folder / "context.json").read_bytes())
    assert "外部说法甲" in context["knowledge"]["nodes"]["answer"]["variables"]["context_knowledge"]
    written = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    assert SECRET.encode() not in written
    asked = [request.body for request in system.model.requests]
    assert any("外部说法甲".encode() in body or b"\\u5916\\u90e8\\u8bf4" in body for body in asked)
    assert not any(SECRET.encode() in body for body in asked)
    assert "外部说法甲" not in json.dumps(result, ensure_ascii=False)
    assert all(source["path"] != "题" for source in result["sources"])


def test_a_file_with_an_error_stops_the_command_by_one_line(system: System) -> None:
    path = system.home / "knowledge.yaml"
    path.write_text("knowledge: [{id: a}]\n", "utf-8")
    payload = system.home / "payload.json"
    payload.write_text(json.dumps(system.payload(1), ensure_ascii=False), "utf-8")

    told = kbw(system, "run", payload, KBW_KNOWLEDGE_FILE=str(path))

    assert told.exit_code == 1
    assert f"{path}:1: error MISSING_FIELD" in told.stderr
    assert "Traceback" not in told.stderr
