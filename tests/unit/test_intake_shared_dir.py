"""The shared directory as way in (CONTRACT §3.1): what is a payload, when, and what happens to what is none."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from tasks.accept import Intake
from tasks.errors import StoreUnavailableError
from tests.fakes import FailingAt, World, payload
from worker.adapters.job_files import FolderStore
from worker.adapters.publish.result_file import ResultFileSink
from worker.intake.loop import IntakeLoop
from worker.intake.refusal import Refusals
from worker.intake.shared_dir import MAX_PAYLOAD_BYTES, SharedDirScanner
from worker.masking import SecretMask
from worker.paths import AllowedRoots

TASK = "query-c1-m1"
EXCLUDED = ("attachments", "uploads", "results", ".kbw")
OLD = 1_000_000_000.0


@dataclass
class Share:
    """A shared directory with the intake over it; the job record is in memory, files are real."""

    root: Path
    world: World = field(default_factory=World)

    def __post_init__(self) -> None:
        for name in ("payloads", "results", "attachments"):
            (self.root / name).mkdir(parents=True, exist_ok=True)
        self.restart()

    def restart(self) -> None:
        """A new intake process: it remembers nothing."""
        mask, roots = SecretMask([]), AllowedRoots(self.root)
        self.world.folders = FolderStore(self.root, mask)  # type: ignore[assignment]
        self.world.sink = ResultFileSink(roots)  # type: ignore[assignment]
        refusals = Refusals(roots, mask, now=self.world.clock.now)
        scanner = SharedDirScanner(roots, refusals, EXCLUDED, 2.0, 60.0, self.world.clock.monotonic)
        records = self.world.records
        self.intake: Intake = self.world.intake
        self.loop = IntakeLoop(scanner, self.intake, records.views, records.sweep, records.archive, refusals, "i1")

    def put(self, name: str, document: Any, *, raw: bytes | None = None, modified: float = OLD) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(json.dumps(document).encode() if raw is None else raw)
        os.utime(path, (modified, modified))
        return path

    def look(self, seconds: float = 3.0) -> None:
        """Rounds half a second apart."""
        for _ in range(int(seconds * 2) + 1):
            self.loop.round(Event())
            self.world.clock.sleep(0.5)

    def answer(self) -> None:
        """Let the workers do what was accepted."""
        self.world.settle()

    def prune_later(self) -> None:
        """A hundred days later: the record of ``TASK`` is a tombstone, its folder is gone."""
        self.world.clock.sleep(100 * 86_400.0)
        self.world.records.prune(30 * 86_400.0)
        shutil.rmtree(self.root / ".kbw" / "jobs" / TASK)

    @property
    def jobs(self) -> set[str]:
        return set(self.world.records.jobs)

    @property
    def reports(self) -> list[dict[str, Any]]:
        folder = self.root / ".kbw" / "rejected"
        return [json.loads(path.read_bytes()) for path in sorted(folder.glob("*.json"))] if folder.exists() else []

    def result(self, name: str = f"results/{TASK}.json") -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.root / name).read_bytes())
        return found


@pytest.fixture
def share(tmp_path: Path) -> Share:
    return Share(tmp_path / "shared")


# ---------------------------------------------------------------- what is a payload


@pytest.mark.parametrize(
    "name", [f"{TASK}.json", f"deep/er/{TASK}.json", f"{TASK}/payload.json", f"a/{TASK}/payload.json"]
)
def test_a_payload_is_found_by_its_name_wherever_it_lies(share: Share, name: str) -> None:
    share.put(name, payload())

    share.look()
    share.answer()

    assert share.result()["success"]
    assert (share.root / name).exists()


@pytest.mark.parametrize(
    "name",
    [
        "other.json",
        "payload.json",
        f"{TASK}x/payload.json",
        f"{TASK}.JSON",
        f"{TASK}.txt",
        f"{TASK}.json.tmp",
        f".{TASK}.json",
        f".{TASK}.json.swp",
        f"~{TASK}.json",
        f"attachments/{TASK}.json",
        f"a/uploads/b/{TASK}.json",
        f"results/{TASK}/payload.json",
        f".kbw/{TASK}.json",
        f".kbw/inbox/{TASK}.json",
        f".trash/{TASK}.json",
    ],
)
def test_other_names_temporary_ones_and_excluded_folders_are_left_alone(share: Share, name: str) -> None:
    share.put(name, payload())

    share.look(70.0)

    assert share.jobs == set()
    assert share.reports == []


@pytest.mark.parametrize(
    "document",
    [
        {"success": True, "taskId": TASK, "skill": "kb_query"},
        {"success": False, "taskId": TASK, "skill": "kb_query", "question": ""},
        {"taskId": TASK},
        {"taskId": "query-c9-m9", "skill": "kb_query"},
        {"skill": "kb_query"},
        [TASK],
        "text",
        None,
    ],
    ids=range(8),
)
def test_other_json_under_a_payloads_name_is_left_alone(share: Share, document: Any) -> None:
    share.put(f"{TASK}.json", document)

    share.look(70.0)

    assert share.jobs == set()
    assert share.reports == []


def test_a_payload_under_another_name_is_left_alone_but_the_log_says_so_once(
    share: Share, caplog: pytest.LogCaptureFixture
) -> None:
    path = share.put(f"payloads/{TASK}-copy.json", payload())

    share.look(70.0)

    assert share.jobs == set()
    told = [record.kbw for record in caplog.records if record.message == "payload.ignored"]  # type: ignore[attr-defined]
    assert told == [{"task_id": TASK, "path": str(path), "reason": f"a payload of this taskId is named {TASK}.json"}]


def test_a_question_makes_a_payload_even_beside_a_field_success(share: Share) -> None:
    share.put(f"{TASK}.json", payload(success=True))

    share.look()

    assert share.jobs == {TASK}


def test_a_link_out_of_the_shared_directory_is_never_read(share: Share, tmp_path: Path) -> None:
    outside = tmp_path / f"{TASK}.json"
    outside.write_text(json.dumps(payload()))
    (share.root / "payloads" / f"{TASK}.json").symlink_to(outside)

    share.look(70.0)

    assert share.jobs == set()


# ---------------------------------------------------------------- when


def test_a_file_counts_only_when_it_stood_still_for_two_seconds(share: Share) -> None:
    share.put(f"{TASK}.json", payload())

    share.look(1.5)
    assert share.jobs == set()
    share.look(1.0)
    assert share.jobs == {TASK}


def test_a_writer_in_place_is_waited_for(share: Share) -> None:
    content = json.dumps(payload()).encode()
    for n in range(1, 6):
        share.put(f"{TASK}.json", None, raw=content[: n * len(content) // 5], modified=OLD + n)
        share.look(1.0)
        assert share.jobs == set()

    share.look(2.5)

    assert share.jobs == {TASK}
    assert share.reports == []


def test_valid_json_that_still_grows_is_waited_for(share: Share) -> None:
    """Every state of this file parses; only the last one is the payload."""
    for n in range(4):
        share.put(f"{TASK}.json", payload(question="为什么" + "很" * n + "慢？"), modified=OLD + n)
        share.look(1.5)

    share.look(1.0)

    assert json.loads((share.root / ".kbw/jobs" / TASK / "payload.json").read_bytes())["question"] == "为什么很很很慢？"


def test_what_is_no_json_after_a_minute_is_reported_once_and_no_path_is_taken_from_it(share: Share) -> None:
    broken = b'{"taskId": "query-c1-m1", "resultFile": "results/query-c1-m1.json", "skill": '
    path = share.put(f"{TASK}.json", None, raw=broken)

    share.look(59.0)
    assert share.reports == []
    share.look(3.0)
    assert [(r["errorCode"], r["path"], r["taskId"]) for r in share.reports] == [("BAD_PAYLOAD", str(path), "")]
    before = sorted(path.name for path in (share.root / ".kbw" / "rejected").iterdir())
    share.restart()
    share.look(70.0)

    assert sorted(path.name for path in (share.root / ".kbw" / "rejected").iterdir()) == before
    assert list((share.root / "results").iterdir()) == []
    assert path.read_bytes() == broken


@pytest.mark.parametrize(
    "raw", [b"", b"\xff\xfe", b"[" * 100_000, b'{"a": NaN}', b"{" + b" " * MAX_PAYLOAD_BYTES + b"}"], ids=range(5)
)
def test_every_kind_of_broken_file_is_told_and_stops_nothing(share: Share, raw: bytes) -> None:
    share.put("query-c9-m9.json", None, raw=raw)
    share.put(f"{TASK}.json", payload())

    share.look(62.0)

    assert share.jobs == {TASK}
    assert len(share.reports) == 1


def test_a_file_that_cannot_be_read_now_is_read_later(share: Share) -> None:
    path = share.put(f"{TASK}.json", None, raw=b"{")
    share.look(62.0)
    share.put(f"{TASK}.json", payload(), modified=OLD + 1)

    share.look()

    assert share.jobs == {TASK}
    assert path.exists()


# ---------------------------------------------------------------- once


def test_a_file_is_looked_into_once_and_again_when_it_changes(share: Share) -> None:
    share.put(f"{TASK}.json", payload())
    share.look()
    share.answer()
    (share.root / "results" / f"{TASK}.json").unlink()

    share.look(10.0)
    assert not (share.root / "results" / f"{TASK}.json").exists()
    share.put(f"{TASK}.json", payload(), modified=share.world.clock.now() + 100)
    share.look()
    assert share.result()["success"]


def test_a_restart_runs_and_delivers_nothing_again(share: Share) -> None:
    share.put(f"{TASK}.json", payload())
    share.look()
    share.answer()
    calls = len(share.world.model.calls)
    (share.root / "results" / f"{TASK}.json").unlink()

    share.restart()
    share.look()
    share.answer()

    assert len(share.world.model.calls) == calls
    assert list((share.root / "results").iterdir()) == []


def test_a_repeat_written_before_the_job_ended_and_found_after_it_gets_its_result_once(share: Share) -> None:
    share.put(f"a/{TASK}.json", payload())
    share.look()
    share.put(f"b/{TASK}.json", payload(resultFile="results/repeat.json"))
    share.answer()

    share.look()
    assert share.result("results/repeat.json") == share.result()
    (share.root / "results" / "repeat.json").unlink()
    share.restart()
    share.look()

    assert not (share.root / "results" / "repeat.json").exists()


def test_a_job_that_was_forgotten_long_ago_is_not_run_again(share: Share) -> None:
    share.put(f"{TASK}.json", payload())
    share.look()
    share.answer()
    share.prune_later()

    share.restart()
    share.look()

    assert not share.world.woken
    assert not (share.root / ".kbw" / "jobs" / TASK).exists()


def test_no_found_file_is_lost_when_redis_goes_away_in_the_middle_of_a_round(share: Share) -> None:
    for n in range(1, 6):
        share.put(f"query-c{n}-m{n}.json", payload(n))
    share.loop.views = FailingAt(share.world.records, "get", StoreUnavailableError("away"))  # type: ignore[assignment]
    share.loop.round(Event())
    share.world.clock.sleep(3.0)
    with pytest.raises(StoreUnavailableError):
        share.loop.round(Event())

    share.look()

    assert share.jobs == {f"query-c{n}-m{n}" for n in range(1, 6)}


def test_a_fault_of_ours_with_one_file_does_not_hold_back_the_others(share: Share) -> None:
    for n in range(1, 4):
        share.put(f"query-c{n}-m{n}.json", payload(n))
    share.loop.views = FailingAt(share.world.records, "get", ZeroDivisionError())  # type: ignore[assignment]

    share.look(2.0)
    assert len(share.jobs) == 2
    share.look(3.0)
    assert len(share.jobs) == 3


# ---------------------------------------------------------------- attachments and results of jobs


def test_what_a_job_names_as_attachment_or_result_is_never_a_payload(share: Share) -> None:
    share.put("query-c2-m2.json", payload(2))
    share.put("files/query-c3-m3.json", payload(3))
    attached = [{"storagePath": "query-c2-m2.json"}, {"storagePath": "/mnt/theirs/files/query-c3-m3.json"}]
    share.put(f"{TASK}.json", payload(attachments=attached, sharedDir="/mnt/theirs"))

    share.look()

    assert share.jobs == {TASK}


def test_attachments_of_jobs_that_came_another_way_are_known_too(share: Share) -> None:
    share.world.accept(payload(1, attachments=[{"storagePath": "query-c2-m2.json"}]))
    share.put("query-c2-m2.json", payload(2))

    share.look()

    assert share.jobs == {TASK}


def test_a_result_beside_its_payload_is_no_payload(share: Share) -> None:
    share.put(f"{TASK}/payload.json", payload(resultFile=f"{TASK}/{TASK}.json"))
    share.look()
    share.answer()
    share.restart()

    share.look(5.0)

    assert share.result(f"{TASK}/{TASK}.json")["success"]
    assert share.reports == []


def test_a_payload_that_names_itself_as_result_is_told_not_dropped(share: Share) -> None:
    path = share.put(f"{TASK}.json", payload(resultFile=f"{TASK}.json"))
    before = path.read_bytes()

    share.look()
    share.answer()

    assert share.world.record(TASK).code == "PATH_NOT_ALLOWED"
    assert path.read_bytes() == before


# ---------------------------------------------------------------- answered before us, lost by Redis


def foreign_result(**changes: Any) -> dict[str, Any]:
    return {"success": True, "taskId": TASK, "answer": "旧系统的回答", **changes}


def test_a_folder_full_of_answered_payloads_is_recognised_and_not_run(share: Share) -> None:
    for n in range(1, 4):
        share.put(f"query-c{n}-m{n}.json", payload(n))
        share.put(f"results/query-c{n}-m{n}.json", foreign_result(taskId=f"query-c{n}-m{n}", success=n != 3))

    share.look()
    share.answer()

    assert [share.world.record(f"query-c{n}-m{n}").state for n in range(1, 4)] == ["done", "done", "failed"]
    assert all(share.world.record(task).source.startswith("foreign") for task in share.jobs)
    assert share.world.model.calls == []
    assert share.result()["answer"] == "旧系统的回答"


def test_an_answered_payload_can_be_replayed_and_is_not_taken_for_open_work(share: Share) -> None:
    share.put(f"{TASK}.json", payload())
    share.put(f"results/{TASK}.json", foreign_result())
    share.look()
    folder = share.root / ".kbw" / "jobs" / TASK

    assert json.loads((folder / "payload.json").read_bytes())["taskId"] == TASK
    assert json.loads((folder / "result.json").read_bytes()) == foreign_result()


@pytest.mark.parametrize(
    "other",
    [{"taskId": "query-x-y"}, {"success": None, "taskId": ""}, {"question": "?"}],
    ids=["task", "none", "payload"],
)
def test_a_file_that_is_no_result_of_this_task_is_not_believed(share: Share, other: dict[str, Any]) -> None:
    share.put(f"{TASK}.json", payload())
    share.put(f"results/{TASK}.json", foreign_result(**other))

    share.look()
    share.answer()

    assert share.world.record(TASK).code == "PATH_NOT_ALLOWED"
    assert share.result()["answer"] == "旧系统的回答"


def test_a_job_that_redis_lost_is_restored_from_its_folder_as_done(share: Share) -> None:
    share.put(f"{TASK}.json", payload())
    share.look()
    share.answer()
    body = (share.root / "results" / f"{TASK}.json").read_bytes()
    share.world = World(clock=share.world.clock)
    share.restart()

    share.look()
    share.answer()

    assert share.world.record(TASK).source == "restored"
    assert share.world.record(TASK).state == "done"
    assert share.world.model.calls == []
    assert (share.root / "results" / f"{TASK}.json").read_bytes() == body


# ---------------------------------------------------------------- what cannot be accepted


def test_a_payload_without_a_result_file_is_told(share: Share) -> None:
    share.put(f"{TASK}.json", payload(resultFile=""))

    share.look()

    assert share.jobs == set()
    assert [(r["errorCode"], r["taskId"]) for r in share.reports] == [("BAD_PAYLOAD", TASK)]
    assert "resultFile" in share.reports[0]["errors"][0]


def test_a_refused_payload_gets_a_report_and_an_error_result(share: Share) -> None:
    share.put(f"{TASK}.json", payload(deadlineSeconds=1))

    share.look()

    assert share.jobs == set()
    assert share.result()["success"] is False
    assert share.result()["errorCode"] == "BAD_PAYLOAD"
    assert "deadlineSeconds" in share.result()["errors"][0]
    assert share.reports[0]["resultFile"].endswith(f"results/{TASK}.json")
    names = [path.name for path in (share.root / ".kbw" / "rejected").iterdir()]
    assert len(names) == 1
    assert names[0].startswith(f"{TASK}-")
    assert len(names[0]) == len(f"{TASK}-12345678.json")


@pytest.mark.parametrize(
    "named",
    [
        "../outside.json",
        "/etc/kbw.json",
        "results/x.txt",
        ".kbw/x.json",
        "gone/x.json",
        "a\0b.json",
        7,
        "existing.json",
    ],
    ids=range(8),
)
def test_an_error_result_goes_only_where_a_result_may_go(share: Share, tmp_path: Path, named: Any) -> None:
    share.put("existing.json", {"mine": True})
    share.put(f"{TASK}.json", payload(deadlineSeconds=1, resultFile=named))

    share.look()

    assert [r["resultFile"] for r in share.reports] == [""]
    assert json.loads((share.root / "existing.json").read_bytes()) == {"mine": True}
    assert list((share.root / "results").iterdir()) == []
    assert {path.name for path in tmp_path.iterdir()} == {"shared"}


def test_a_conflict_never_touches_the_first_job(share: Share) -> None:
    share.put(f"a/{TASK}.json", payload())
    share.look()
    share.put(f"b/{TASK}.json", payload(question="完全不同的问题"))
    share.look()

    assert not (share.root / "results" / f"{TASK}.json").exists()  # the first one's place, not answered yet
    assert [(r["errorCode"], r["resultFile"]) for r in share.reports] == [("CONFLICT", "")]
    share.answer()
    assert share.result()["success"]


def test_a_conflict_is_answered_at_the_second_ones_own_place(share: Share) -> None:
    share.put(f"a/{TASK}.json", payload())
    share.look()
    share.put(f"b/{TASK}.json", payload(question="完全不同的问题", resultFile="results/second.json"))
    share.look()
    share.answer()

    assert share.result("results/second.json")["errorCode"] == "CONFLICT"
    assert share.result()["success"]


def test_a_conflict_with_a_job_that_was_pruned_is_answered_too_but_not_in_its_place(share: Share) -> None:
    share.put(f"a/{TASK}.json", payload())
    share.look()
    share.answer()
    share.prune_later()
    (share.root / "results" / f"{TASK}.json").unlink()

    share.put(f"b/{TASK}.json", payload(question="完全不同的问题", resultFile="results/second.json"))
    share.look()
    assert share.result("results/second.json")["errorCode"] == "CONFLICT"

    share.put(f"c/{TASK}.json", payload(question="又一个问题"))
    share.look()
    assert not (share.root / "results" / f"{TASK}.json").exists()


@pytest.mark.parametrize("spelling", ["results/../results/{}.json", "./results/{}.json", "/mnt/theirs/results/{}.json"])
def test_other_spellings_of_the_first_ones_place_are_its_place(share: Share, spelling: str) -> None:
    share.put(f"a/{TASK}.json", payload())
    share.look()
    named = spelling.format(TASK)
    share.put(f"b/{TASK}.json", payload(question="完全不同的问题", resultFile=named, sharedDir="/mnt/theirs"))
    share.look()

    assert not (share.root / "results" / f"{TASK}.json").exists()


def test_a_place_that_a_repeat_asked_for_belongs_to_the_first_job_too(share: Share) -> None:
    share.put(f"a/{TASK}.json", payload())
    share.put(f"b/{TASK}.json", payload(resultFile="results/repeat.json"))
    share.look()
    share.put(f"c/{TASK}.json", payload(question="完全不同的问题", resultFile="results/repeat.json"))
    share.look()
    assert not (share.root / "results" / "repeat.json").exists()

    share.answer()

    assert share.result("results/repeat.json") == share.result()


def test_a_broken_repeat_of_a_job_at_work_does_not_answer_in_its_place(share: Share) -> None:
    share.put(f"a/{TASK}.json", payload())
    share.look()
    share.put(f"b/{TASK}.json", payload(deadlineSeconds=1))
    share.look()

    assert not (share.root / "results" / f"{TASK}.json").exists()
    assert [r["errorCode"] for r in share.reports] == ["BAD_PAYLOAD"]


def test_a_share_that_goes_away_is_not_filled_and_comes_back(share: Share, tmp_path: Path) -> None:
    share.put(f"{TASK}.json", payload(deadlineSeconds=1))
    share.look(1.0)
    share.root.rename(tmp_path / "elsewhere")
    share.look(5.0)
    assert not share.root.exists()
    (tmp_path / "elsewhere").rename(share.root)

    share.look()

    assert len(share.reports) == 1
