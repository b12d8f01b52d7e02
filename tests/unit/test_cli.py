"""The command line before any server is asked: exit codes, last lines, and never a traceback."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.fakes import payload
from worker.cli import main
from worker.ops.schema import SHAPES
from worker.settings import Settings

TASK = "query-c1-m1"


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    place = tmp_path / "shared"
    (place / "results").mkdir(parents=True)
    return place


@pytest.fixture
def kbw(tmp_path: Path, shared: Path) -> Any:
    unset = {row.name: "" for row in Settings.load().rows()}
    environment = {
        **unset,
        "OPENCLAW_SHARED_DIR": str(shared),
        "KBW_CACHE_DIR": str(tmp_path / "cache"),
        "KBW_STATE_DIR": str(tmp_path / "state"),
    }

    def invoke(*arguments: object, **changes: str) -> Result:
        result = CliRunner().invoke(main, [str(part) for part in arguments], env={**environment, **changes})
        assert "Traceback" not in result.output
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result

    return invoke


def write(path: Path, document: Any, raw: bytes | None = None) -> Path:
    path.write_bytes(json.dumps(document).encode() if raw is None else raw)
    return path


# ---------------------------------------------------------------- usage


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["run"],
        ["unknown"],
        ["schema", "nothing"],
        ["prepare", "--input", "x"],
        ["list", "--state", "lost"],
        ["worker", "--class", "gpu"],
        ["worker", "--class", "io", "--concurrency", "0"],
    ],
    ids=" ".join,
)
def test_wrong_usage_is_exit_code_2(kbw: Any, arguments: list[str]) -> None:
    assert kbw(*arguments).exit_code == 2


@pytest.mark.parametrize(
    "command", ["run", "submit", "prepare", "fetch", "apply", "list", "show", "doctor", "schema", "up"]
)
def test_every_command_explains_itself(kbw: Any, command: str) -> None:
    result = kbw(command, "--help")

    assert result.exit_code == 0
    assert len(result.stdout) > 60


@pytest.mark.parametrize("suffix", ["md", "yaml", "jsonl"])
def test_the_cards_that_the_help_of_faq_plan_shows_can_be_planned(kbw: Any, tmp_path: Path, suffix: str) -> None:
    shown = textwrap.dedent(kbw("faq", "plan", "--help").stdout.partition("Each card")[2])
    cards = tmp_path / f"cards.{suffix}"
    cards.write_text(textwrap.dedent(shown.split(f"cards.{suffix}:\n")[1].split("\n\n")[0]), "utf-8")

    result = kbw("faq", "plan", cards, "--output", tmp_path / "plan.json", "--out", tmp_path / "out", "--offline")

    assert result.exit_code == 0, result.stderr
    entries = json.loads((tmp_path / "plan.json").read_bytes())["batches"][0]["entries"]
    assert [len(entry["similar_questions"]) for entry in entries] == [1]


def test_a_plan_without_weknora_names_the_way_without_it(kbw: Any, tmp_path: Path) -> None:
    cards = tmp_path / "cards.md"
    cards.write_text("## 问\n答", "utf-8")

    result = kbw("faq", "plan", cards, "--output", tmp_path / "plan.json", "--out", tmp_path / "out")

    assert result.exit_code == 1
    assert "KBW_WEKNORA_URL is not set" in result.stderr
    assert "--offline" in result.stderr


# ---------------------------------------------------------------- schema, settings


def test_schemas_are_listed_and_each_is_json(kbw: Any) -> None:
    names = kbw("schema").stdout.split()

    assert names == [*SHAPES, "knowledge"]
    for name in names:
        assert json.loads(kbw("schema", name).stdout)["$id"] == f"kbw/{name}"


def test_settings_are_shown_with_origin_and_meaning_but_no_secret(kbw: Any) -> None:
    rows = json.loads(kbw("doctor", "--settings", "--json", GITEA_BOT_TOKEN="tok-3f9a17c2").stdout)
    found = {row["name"]: row for row in rows}

    assert found["GITEA_BOT_TOKEN"]["value"] == "set"
    assert found["OPENCLAW_SHARED_DIR"]["origin"] == "environment"
    assert all(row["meaning"] for row in rows)
    assert "tok-3f9a17c2" not in kbw("doctor", "--settings", GITEA_BOT_TOKEN="tok-3f9a17c2").output


def test_doctor_names_a_misspelt_variable_and_what_was_meant(kbw: Any) -> None:
    told = kbw("doctor", KBW_MAX_ATEMPTS="3", GITEA_BOT_TOKN="x").output

    assert "KBW_MAX_ATEMPTS is no setting" in told
    assert "did you mean KBW_MAX_ATTEMPTS?" in told
    assert "did you mean GITEA_BOT_TOKEN?" in told
    assert "is no setting" not in kbw("doctor").output


def test_a_redis_url_of_another_kind_is_refused_by_its_name(kbw: Any) -> None:
    result = kbw("up", KBW_REDIS_URL="http://redis.example.com")

    assert (result.exit_code, result.stderr.split(":")[1].strip()) == (1, "KBW_REDIS_URL")


def test_a_reader_that_goes_away_is_no_error_of_ours() -> None:
    ends = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m worker.cli schema answer | true; echo ${{PIPESTATUS[0]}}"],
        capture_output=True,
        text=True,
        timeout=240,
    )

    assert "INTERNAL" not in ends.stderr
    assert "Traceback" not in ends.stderr


def test_a_wrong_setting_is_one_line_and_exit_code_1(kbw: Any) -> None:
    result = kbw("list", KBW_LEASE_S="soon")

    assert result.exit_code == 1
    assert "KBW_LEASE_S" in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "arguments", [["list"], ["show", TASK], ["submit", "p.json"], ["up"], ["intake"]], ids=" ".join
)
def test_commands_that_need_the_shared_directory_say_so(kbw: Any, tmp_path: Path, arguments: list[str]) -> None:
    write(tmp_path / "p.json", payload())
    named = [str(tmp_path / part) if part.endswith(".json") else part for part in arguments]

    result = kbw(*named, OPENCLAW_SHARED_DIR="")

    assert result.exit_code == 1
    assert "OPENCLAW_SHARED_DIR" in result.stderr


def test_why_a_command_failed_is_told_without_our_secrets(kbw: Any) -> None:
    key = "sk-live-51f0c2"
    result = kbw("knowledge", "search", key, "question", KBW_WEKNORA_INGEST_KEY=key)
    assert result.exit_code == 1
    assert "no source [secret]" in result.stderr


@pytest.mark.parametrize("arguments", [["list"], ["submit", "p.json"]], ids=" ".join)
def test_without_a_running_system_the_way_to_start_one_is_told(kbw: Any, tmp_path: Path, arguments: list[str]) -> None:
    write(tmp_path / "p.json", payload())
    named = [str(tmp_path / part) if part.endswith(".json") else part for part in arguments]

    result = kbw(*named)

    assert result.exit_code == 1
    assert f"{tmp_path / 'state'} (KBW_STATE_DIR): start `kbw up`" in result.stderr


# ---------------------------------------------------------------- run, apply: the last line


def last_line(result: Result) -> dict[str, Any]:
    line = result.stdout.splitlines()[-1]
    found: dict[str, Any] = json.loads(line)
    assert line == json.dumps(found, ensure_ascii=False)
    assert list(found) == ["success", "resultFile"]
    return found


@pytest.mark.parametrize(
    "raw",
    [
        b"", b"{", b"[]", b"null", b"\xff\xfe\x00", b"[" * 100_000, b'{"taskId": NaN}',
        json.dumps({"taskId": 7, "skill": []}).encode(),
        json.dumps(payload(conversationId="other")).encode(),
        json.dumps(payload(sharedDir="a\0b", question="")).encode(),
        json.dumps(payload(resultFile=["x"])).encode(),
        json.dumps(payload(resultFile="a\0b.json", deadlineSeconds=1)).encode(),
        json.dumps(payload(resultFile="\ud800.json", deadlineSeconds=1)).encode(),
    ],
    ids=range(13),
)  # fmt: skip
@pytest.mark.parametrize("own_directory", [True, False], ids=["configured", "beside"])
def test_no_payload_however_broken_ends_in_a_traceback(
    kbw: Any, tmp_path: Path, raw: bytes, own_directory: bool
) -> None:
    file = write(tmp_path / f"{TASK}.json", None, raw)
    changes = {} if own_directory else {"OPENCLAW_SHARED_DIR": ""}

    result = kbw("run", file, **changes)

    assert result.exit_code == 1
    assert last_line(result)["success"] is False
    assert "BAD_PAYLOAD" in result.stderr
    assert kbw("prepare", "--input", file, "--context-output", tmp_path / "c.json", **changes).exit_code == 1
    assert not (tmp_path / "c.json").exists()


def test_a_file_that_is_not_there_is_named(kbw: Any, tmp_path: Path) -> None:
    result = kbw("run", tmp_path / "gone.json")

    assert result.exit_code == 1
    assert "gone.json" in result.stderr
    assert last_line(result) == {"success": False, "resultFile": ""}


def test_a_refused_payload_is_answered_and_the_last_line_says_where(kbw: Any, shared: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "p.json", payload(deadlineSeconds=1))

    for _ in range(2):  # a person asks again: answered again
        result = kbw("run", file)
        place = shared / "results" / f"{TASK}.json"
        assert last_line(result) == {"success": False, "resultFile": str(place)}
        assert json.loads(place.read_bytes())["errorCode"] == "BAD_PAYLOAD"
        place.unlink()
    assert len(list((shared / ".kbw" / "rejected").iterdir())) == 1


def test_run_without_a_gitea_is_an_error_result_not_a_crash(kbw: Any, shared: Path, tmp_path: Path) -> None:
    result = kbw("run", write(tmp_path / "p.json", payload()))

    assert result.exit_code == 1
    assert last_line(result)["resultFile"] == str(shared / "results" / f"{TASK}.json")
    found = json.loads((shared / "results" / f"{TASK}.json").read_bytes())
    assert found["errorCode"] == "KB_UNREACHABLE"
    assert "GITEA_URL" in found["errors"][0]
    assert [json.loads(line)["event"] for line in (shared / ".kbw/jobs" / TASK / "events.jsonl").open()] == [
        "accept", "fail", "finish",
    ]  # fmt: skip
    assert "KB_UNREACHABLE: GITEA_URL is not set" in result.stderr


def test_a_run_that_failed_is_run_again_and_what_it_replaces_is_kept(kbw: Any, shared: Path, tmp_path: Path) -> None:
    file, home = write(tmp_path / "p.json", payload()), shared / ".kbw" / "jobs" / TASK
    kbw("run", file)
    first = (home / "result.json").read_bytes()

    result = kbw("run", file, GITEA_URL="http://127.0.0.1:9")

    assert "KB_NOT_FOUND: no repository: set TEAM_KB_REPO" in result.stderr
    assert (home / "attempts" / "0" / "result.json").read_bytes() == first
    assert (shared / "results" / f"{TASK}.json").read_bytes() == (home / "result.json").read_bytes() != first
    events = [json.loads(line) for line in (home / "events.jsonl").open()]
    assert [(event["event"], event["generation"]) for event in events] == [
        ("accept", 0), ("fail", 0), ("finish", 0), ("replay", 1), ("fail", 1), ("finish", 1),
    ]  # fmt: skip


def test_a_failed_job_of_the_running_system_is_not_run_beside_it(kbw: Any, shared: Path, tmp_path: Path) -> None:
    file, home = write(tmp_path / "p.json", payload()), shared / ".kbw" / "jobs" / TASK
    kbw("run", file)
    journal = (home / "events.jsonl").read_text("utf-8").replace("run:", "file:")
    (home / "events.jsonl").write_text(journal, "utf-8")

    result = kbw("run", file)

    assert result.exit_code == 1
    assert f"`kbw replay {TASK}` runs it once more" in result.stderr
    assert "KB_UNREACHABLE: the Gitea server did not answer; the team was told “" in result.stderr
    assert (home / "events.jsonl").read_text("utf-8") == journal


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"success": true}', '{"success": true, "taskId": "query-1-2"}'], ids=range(4)
)
def test_a_hand_made_result_is_put_aside_and_not_delivered(kbw: Any, shared: Path, tmp_path: Path, text: str) -> None:
    home = shared / ".kbw" / "jobs" / TASK
    home.mkdir(parents=True)
    (home / "result.json").write_text(text)

    kbw("run", write(tmp_path / "p.json", payload()))

    assert json.loads((shared / "results" / f"{TASK}.json").read_bytes())["errorCode"] == "KB_UNREACHABLE"
    assert (home / "attempts" / "0" / "result.json").read_text() == text


def test_a_payload_that_says_one_thing_twice_is_refused(kbw: Any, shared: Path, tmp_path: Path) -> None:
    twice = json.dumps(payload())[:-1] + ', "question": "另一个？"}'

    result = kbw("run", write(tmp_path / "p.json", None, raw=twice.encode()))

    assert "BAD_PAYLOAD: payload has the field 'question' twice" in result.stderr
    assert "question 出现两次" in json.loads((shared / "results" / f"{TASK}.json").read_bytes())["errors"][0]


def test_run_refuses_a_known_task_with_other_content(kbw: Any, shared: Path, tmp_path: Path) -> None:
    kbw("run", write(tmp_path / "first.json", payload()))
    before = (shared / "results" / f"{TASK}.json").read_bytes()

    result = kbw("run", write(tmp_path / "second.json", payload(question="完全不同的问题")))

    assert result.exit_code == 1
    assert "CONFLICT" in result.stderr
    assert last_line(result) == {"success": False, "resultFile": ""}
    assert (shared / "results" / f"{TASK}.json").read_bytes() == before


def test_a_secret_in_the_payload_is_no_conflict_with_itself(kbw: Any, shared: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "p.json", payload(question="为什么 tok-3f9a17c2 被拒绝？"))

    for _ in range(2):
        result = kbw("run", file, GITEA_BOT_TOKEN="tok-3f9a17c2")
        assert "CONFLICT" not in result.stderr
        assert last_line(result)["resultFile"].endswith(f"{TASK}.json")
    for path in shared.rglob("*"):
        assert path.is_dir() or b"tok-3f9a17c2" not in path.read_bytes()


def test_without_the_variable_the_payloads_shared_dir_counts_else_its_folder(kbw: Any, tmp_path: Path) -> None:
    place = tmp_path / "elsewhere"
    (place / "results").mkdir(parents=True)
    (tmp_path / "results").mkdir()

    named = kbw("run", write(tmp_path / "a.json", payload(sharedDir="elsewhere")), OPENCLAW_SHARED_DIR="")
    beside = kbw("run", write(tmp_path / "b.json", payload(2)), OPENCLAW_SHARED_DIR="")

    assert last_line(named)["resultFile"] == str(place / "results" / f"{TASK}.json")
    assert last_line(beside)["resultFile"] == str(tmp_path / "results" / "query-c2-m2.json")


def test_a_shared_directory_that_is_not_there_is_told_and_not_made(kbw: Any, tmp_path: Path) -> None:
    file = write(tmp_path / "p.json", payload())

    for broken in (payload(), payload(question="")):
        result = kbw("run", write(file, broken), OPENCLAW_SHARED_DIR=str(tmp_path / "unmounted"))
        assert result.exit_code == 1
        assert last_line(result) == {"success": False, "resultFile": ""}
    assert not (tmp_path / "unmounted").exists()


def test_a_result_that_must_not_be_written_where_it_is_wanted_is_told(kbw: Any, shared: Path, tmp_path: Path) -> None:
    result = kbw("run", write(tmp_path / "p.json", payload(resultFile="../outside.json")))

    assert result.exit_code == 1
    assert "PATH_NOT_ALLOWED" in result.stderr
    assert not (tmp_path / "outside.json").exists()
    assert json.loads((shared / ".kbw/jobs" / TASK / "result.json").read_bytes())["errorCode"] == "PATH_NOT_ALLOWED"


# ---------------------------------------------------------------- the file commands


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b'{"taskId": "query-9-9"}', b"[" * 100_000], ids=range(5))
def test_artefacts_that_cannot_be_used_are_named(kbw: Any, shared: Path, tmp_path: Path, raw: bytes) -> None:
    file, bad = write(tmp_path / "p.json", payload()), write(tmp_path / "bad.json", None, raw)
    out = tmp_path / "out.json"

    fetched = kbw("fetch", "--input", file, "--context", bad, "--selection", bad, "--evidence-output", out)
    applied = kbw("apply", "--input", file, "--context", bad, "--evidence", bad, "--answer", bad)

    assert (fetched.exit_code, applied.exit_code) == (1, 1)
    assert not out.exists()
    assert last_line(applied)["success"] is False
    assert json.loads((shared / "results" / f"{TASK}.json").read_bytes())["success"] is False


def test_a_failed_file_command_says_what_went_wrong_first(kbw: Any, tmp_path: Path) -> None:
    """Not that its error result could not be written either."""
    file = write(tmp_path / "p.json", payload(resultFile="gone/x.json"))

    result = kbw("prepare", "--input", file, "--context-output", tmp_path / "c.json")

    assert result.exit_code == 1
    assert "KB_UNREACHABLE" in result.stderr


# ---------------------------------------------------------------- looking at jobs


def test_a_job_known_only_by_its_folder_can_be_shown(kbw: Any, tmp_path: Path) -> None:
    kbw("run", write(tmp_path / "p.json", payload()))

    shown = kbw("show", TASK)
    told = json.loads(kbw("show", TASK, "--json").stdout)

    assert shown.exit_code == 0
    assert "KB_UNREACHABLE" in shown.stdout
    assert told["artefacts"]["result.json"]["errorCode"] == "KB_UNREACHABLE"
    assert told["events"][0]["event"] == "accept"


@pytest.mark.parametrize("damaged", [b"[]", b"{", b"7", b"\xff", b"[" * 100_000], ids=range(5))
def test_damaged_files_do_not_hide_the_others(kbw: Any, shared: Path, tmp_path: Path, damaged: bytes) -> None:
    kbw("run", write(tmp_path / "p.json", payload()))
    folder = shared / ".kbw" / "jobs" / TASK
    for name in (
        "payload.json",
        "context.json",
        "page-selection.json",
        "evidence.json",
        "outcome.json",
        "receipt.json",
    ):
        (folder / name).write_bytes(damaged)
    with (folder / "events.jsonl").open("ab") as file:
        file.write(damaged + b"\n")

    assert "KB_UNREACHABLE" in kbw("show", TASK).stdout
    assert kbw("show", TASK, "--json").exit_code == 0


@pytest.mark.parametrize("task_id", ["query-9-9", "../../etc", "", "a b"], ids=range(4))
def test_an_unknown_job_is_told(kbw: Any, task_id: str) -> None:
    result = kbw("show", task_id)

    assert result.exit_code == 1
    assert "no job" in result.stderr


@pytest.mark.parametrize("group", ["", "dlq", "kb", "knowledge", "faq", "material"])
def test_no_commands_summary_is_cut_in_a_terminal_of_80_columns(kbw: Any, group: str) -> None:
    told = kbw(*group.split(), "--help", COLUMNS="80").stdout.partition("Commands:")[2]

    assert told.strip()
    assert "..." not in told
