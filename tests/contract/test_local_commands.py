"""``kbw run`` and the file commands against a real git server and a scripted model: same files, same commit code."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.acceptance.system import API_KEY, TOKEN, System, running_system
from tests.model_shapes import Reply
from worker.cli import main


@pytest.fixture
def system(tmp_path: Path) -> Iterator[System]:
    with running_system(tmp_path) as found:
        yield found


def kbw(system: System, *arguments: object, **changes: str) -> Result:
    result = CliRunner().invoke(main, [str(part) for part in arguments], env={**system.environment, **changes})
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def saved(system: System, payload: dict[str, Any]) -> Path:
    path = system.home / f"{payload['taskId']}.json"
    path.write_text(json.dumps(payload, ensure_ascii=False), "utf-8")
    return path


def test_run_answers_commits_and_a_second_run_makes_no_second_commit(system: System) -> None:
    file = saved(system, system.payload(1))
    task, results = "query-c1-m1", system.shared / "results"

    first = kbw(system, "run", file)
    body = (results / f"{task}.json").read_bytes()
    (results / f"{task}.json").unlink()
    second = kbw(system, "run", file)

    result = json.loads(body)
    assert (first.exit_code, second.exit_code) == (0, 0), first.stderr
    assert json.loads(first.stdout.splitlines()[-1]) == {"success": True, "resultFile": str(results / f"{task}.json")}
    assert (results / f"{task}.json").read_bytes() == body
    assert system.commits_of(task) == [result["commitId"]]
    assert result["createdQaPath"] in {entry["path"] for entry in system.catalog()}
    assert f"]({result['createdQaPath']})" in system.git.git("team", "kb", "show", "HEAD:index.md")


def test_run_and_the_file_commands_carry_the_senders_trace_into_the_result(system: System) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    file = saved(system, system.payload(1) | {"traceparent": trace})

    kbw(system, "run", file)
    failed = kbw(system, "prepare", "--input", saved(system, system.payload(2) | {"traceparent": trace}),
                 "--context-output", system.home / "c.json", TEAM_KB_REPO="team/nowhere")  # fmt: skip

    assert failed.exit_code == 1
    found = [json.loads((system.shared / "results" / f"query-c{n}-m{n}.json").read_bytes()) for n in (1, 2)]
    assert [(result["success"], result["traceparent"]) for result in found] == [(True, trace), (False, trace)]
    events = (system.shared / ".kbw" / "jobs" / "query-c1-m1" / "events.jsonl").read_text("utf-8").splitlines()
    assert {json.loads(line)["traceparent"] for line in events} == {trace}


def test_a_run_that_died_before_its_receipt_finds_its_commit(system: System) -> None:
    file = saved(system, system.payload(1))
    kbw(system, "run", file)
    folder = system.shared / ".kbw" / "jobs" / "query-c1-m1"
    for name in ("receipt.json", "result.json"):
        (folder / name).unlink()

    kbw(system, "run", file)

    result = json.loads((folder / "result.json").read_bytes())
    assert system.commits_of("query-c1-m1") == [result["commitId"]]
    assert result["createdQaPath"]


def test_the_deadline_bounds_a_run(system: System) -> None:
    system.model.rule = lambda request: Reply(hang=True)
    result = kbw(system, "run", saved(system, system.payload(1, deadlineSeconds=10)))

    assert result.exit_code == 1
    found = system.result("query-c1-m1") or {}
    assert (found["errorCode"], found["retryable"]) == ("DEADLINE", True)


def test_prepare_fetch_and_apply_hand_over_by_files(system: System) -> None:
    payload = system.payload(1)
    file, home = saved(system, payload), system.home
    context, selection, evidence, answer = (
        home / f"{name}.json" for name in ("context", "selection", "evidence", "answer")
    )

    prepared = kbw(system, "prepare", "--input", file, "--context-output", context)
    page = json.loads(context.read_bytes())["kb"]["catalogPages"][0]["path"]
    selection.write_text(
        json.dumps({"rationale": "r", "selectedPages": [{"path": page, "reason": "x"}, {"path": "no.md"}]})
    )
    fetched = kbw(
        system, "fetch", "--input", file, "--context", context, "--selection", selection, "--evidence-output", evidence
    )
    scores = dict.fromkeys(("reuseValue", "synthesisDepth", "evidenceQuality", "stability", "actionability"), 1)
    document = {
        "answer": "租约到期之后，协调器会再次唤醒任务。",
        "knowledgeSufficient": True,
        "sources": [{"path": page}],
        "highValue": True,
        "qaEvaluation": {**scores, "attachmentDriven": False, "ephemeral": False, "reason": "常见问题"},
        "qa": {"write": True, "title": "租约到期之后"},
    }
    answer.write_text(json.dumps(document, ensure_ascii=False), "utf-8")
    arguments = ("apply", "--input", file, "--context", context, "--evidence", evidence, "--answer", answer)
    applied, again = kbw(system, *arguments), kbw(system, *arguments)

    assert [result.exit_code for result in (prepared, fetched, applied, again)] == [0, 0, 0, 0], applied.stderr
    assert json.loads(fetched.stdout)["missingPages"] == [{"path": "no.md", "reason": "unknown"}]
    result = system.result(payload["taskId"]) or {}
    assert result["createdQaPath"] == "qa/租约到期之后.md"
    assert system.commits_of(payload["taskId"]) == [result["commitId"]]
    assert json.loads(applied.stdout.splitlines()[-1])["resultFile"].endswith("results/query-c1-m1.json")


def files(home: Path, **names: str) -> list[str]:
    """``--name home/file`` for each."""
    return [part for name, file in names.items() for part in (f"--{name.replace('_', '-')}", str(home / file))]


def test_a_secret_in_an_answer_file_reaches_neither_result_nor_repository(system: System) -> None:
    home, task = system.home, saved(system, system.payload(1)).name
    kbw(system, "prepare", *files(home, input=task, context_output="c.json"))
    (home / "s.json").write_text('{"rationale": "", "selectedPages": [{"path": "concepts/p2.md"}]}')
    kbw(system, "fetch", *files(home, input=task, context="c.json", selection="s.json", evidence_output="e.json"))
    scores = dict.fromkeys(("reuseValue", "synthesisDepth", "evidenceQuality", "stability"), 1)
    document = {
        "answer": f"令牌是 {TOKEN}。",
        "knowledgeSufficient": True,
        "sources": [{"path": "concepts/p2.md"}],
        "qaEvaluation": {**scores, "reason": f"常见 {API_KEY}"},
        "qa": {"write": True, "title": f"令牌 {TOKEN}", "content": f"密钥是 {API_KEY}。"},
    }
    (home / "a.json").write_text(json.dumps(document))

    kbw(system, "apply", *files(home, input=task, context="c.json", evidence="e.json", answer="a.json"))

    result = system.result("query-c1-m1") or {}
    assert f"]({result['createdQaPath']})" in system.git.git("team", "kb", "show", "HEAD:index.md")
    told = json.dumps(result) + system.git.git("team", "kb", "show", "HEAD")
    assert [secret for secret in (TOKEN, API_KEY) if secret in told] == []


@pytest.mark.parametrize("output", ["nowhere/c.json", "query-c1-m1.json"], ids=["no folder", "the payload"])
def test_an_output_that_cannot_be_written_is_told_in_the_result_too(system: System, output: str) -> None:
    file = saved(system, system.payload(1))
    before = file.read_bytes()

    prepared = kbw(system, "prepare", *files(system.home, input=file.name, context_output=output))

    assert prepared.exit_code == 1
    assert (system.result("query-c1-m1") or {})["success"] is False
    assert file.read_bytes() == before


def test_an_answer_that_cites_what_was_never_read_is_refused(system: System) -> None:
    home, task = system.home, saved(system, system.payload(1)).name
    kbw(system, "prepare", *files(home, input=task, context_output="c.json"))
    (home / "s.json").write_text('{"rationale": "", "selectedPages": [{"path": "concepts/p2.md"}]}')
    kbw(system, "fetch", *files(home, input=task, context="c.json", selection="s.json", evidence_output="e.json"))
    document = {"answer": "是的。", "knowledgeSufficient": True, "sources": [{"path": "concepts/p1.md"}]}
    (home / "a.json").write_text(json.dumps(document))

    named = files(home, input=task, context="c.json", evidence="e.json", answer="a.json", result_output="out.json")
    result = kbw(system, "apply", *named)

    assert result.exit_code == 1
    told = json.loads((home / "out.json").read_bytes())
    assert (told["errorCode"], told["processedSources"]) == ("UNKNOWN_SOURCE", ["team-kb"])
    assert json.loads(result.stdout.splitlines()[-1]) == {"success": False, "resultFile": str(home / "out.json")}
    assert system.result("query-c1-m1") is None


def test_no_command_writes_over_what_it_reads(system: System) -> None:
    file = saved(system, system.payload(1))
    body = file.read_bytes()
    (system.home / "link.json").symlink_to(file)
    prepare = ("prepare", "--input", file, "--context-output")
    apply = ("apply", "--input", file, *files(system.home, context="c", evidence="e", answer="a"), "--result-output")

    refused = [kbw(system, *prepare, system.home / "link.json"), kbw(system, *apply, file)]

    assert [result.exit_code for result in refused] == [1, 1]
    assert all("name another output file" in result.stderr for result in refused)
    assert file.read_bytes() == body


def test_artefacts_of_another_task_are_refused(system: System) -> None:
    home, task, other = system.home, saved(system, system.payload(1)).name, saved(system, system.payload(2)).name
    kbw(system, "prepare", *files(home, input=other, context_output="c.json"))
    (home / "s.json").write_text('{"selectedPages": []}')

    named = files(home, input=task, context="c.json", selection="s.json", evidence_output="e.json")
    result = kbw(system, "fetch", *named)

    assert result.exit_code == 1
    assert "BAD_PAYLOAD" in result.stderr
    assert not (home / "e.json").exists()
    told = system.result("query-c1-m1") or {}
    assert (told["errorCode"], told["processedSources"]) == ("BAD_PAYLOAD", [])


def test_a_server_that_refuses_the_token_is_told_without_it(system: System) -> None:
    result = kbw(system, "run", saved(system, system.payload(1)), GITEA_BOT_TOKEN="wrong-token-77")

    assert result.exit_code == 1
    assert (system.result("query-c1-m1") or {})["errorCode"] == "KB_AUTH"
    everything = b"".join(path.read_bytes() for path in system.shared.rglob("*") if path.is_file())
    for secret in ("wrong-token-77", TOKEN, API_KEY):
        assert secret not in result.output
        assert secret.encode() not in everything
