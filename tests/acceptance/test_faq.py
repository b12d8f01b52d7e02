"""FAQ batches with the real command before the stand-in: 500 cards, kills in the middle, no card twice or missing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.system import PATIENCE_S, wait_for
from tests.weknora_server import INGEST_KEY, RETRIEVE_KEY, Base, WeknoraServer

pytestmark = [pytest.mark.acceptance, pytest.mark.enable_socket]
ROOT = Path(__file__).resolve().parents[2]
KB = "MCN极致事件素材库"


def card(number: int) -> dict[str, Any]:
    return {
        "question": f"找一条 第{number}位摊主 预期反转 第{number}号夜市摊位 的 钩子 型事件素材",
        "answers": [f"编号：{number}-1\n内容含义：第{number}号卡的落差结构说明"],
        "similar": [f"第{number}号摊主被刁难之后怎么反击"],
    }


@dataclass
class Desk:
    """An operator's shell before one WeKnora."""

    home: Path
    server: WeknoraServer
    base: Base
    more: dict[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        return {
            **{name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ},
            "PYTHONPATH": str(ROOT),
            "KBW_WEKNORA_URL": self.server.url,
            "KBW_WEKNORA_API_KEY": RETRIEVE_KEY,
            "KBW_WEKNORA_INGEST_KEY": INGEST_KEY,
            "KBW_STATE_DIR": str(self.home / "state"),
            "http_proxy": "http://127.0.0.1:9",
            "all_proxy": "http://127.0.0.1:9",
            **self.more,
        }

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-P", "-m", "worker.cli", "faq", *arguments]

    def faq(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments),
            env=self.environment,
            cwd=self.home,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    def cards(self, count: int, first: int = 1) -> Path:
        path = self.home / f"cards-{first}-{count}.jsonl"
        lines = (json.dumps(card(n), ensure_ascii=False) for n in range(first, first + count))
        path.write_text("\n".join(lines), "utf-8")
        return path

    def plan(self, count: int, *options: str) -> Path:
        plan = self.home / "plan.json"
        done = self.faq("plan", str(self.cards(count)), "--output", str(plan), *options)
        assert done.returncode == 0, done.stderr
        return plan

    def killed_import(self, plan: Path, when: Any) -> None:
        """Start an import and kill it (SIGKILL) as soon as ``when()`` holds."""
        process = subprocess.Popen(
            self.command("import", str(plan)), env=self.environment, cwd=self.home, stderr=subprocess.DEVNULL
        )
        limit = time.monotonic() + PATIENCE_S
        while not when():
            assert process.poll() is None or when(), "the import ended before it could be killed"
            assert time.monotonic() < limit
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE_S)

    def questions(self) -> Counter[str]:
        return Counter(entry["standard_question"] for entry in self.base.entries)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with WeknoraServer() as server:
        yield Desk(tmp_path, server, server.add(Base(KB)))


@pytest.mark.parametrize(
    ("at", "repeats_double"),
    [(0, False), (150, True), (200, False), (330, False), (470, True)],
    ids=["at once", "first batch", "between batches", "second batch", "last batch"],
)
def test_a_killed_import_of_500_cards_is_resumed_to_each_card_once(
    desk: Desk, at: int, *, repeats_double: bool
) -> None:
    desk.server.traps.entry_s = 0.004
    desk.server.traps.duplicate_on_repeat = repeats_double
    plan = desk.plan(500)
    desk.killed_import(plan, lambda: len(desk.base.entries) >= at and bool(desk.server.tasks))
    resumed = desk.faq("resume", str(plan))
    assert resumed.returncode == 0, resumed.stderr
    assert desk.questions() == Counter(card(n)["question"] for n in range(1, 501))
    assert "0 missing, 0 twice" in resumed.stderr


@pytest.mark.parametrize("terse", [False, True])
def test_a_server_that_forgets_its_progress_is_judged_by_the_base(desk: Desk, *, terse: bool) -> None:
    desk.server.traps.entry_s = 0.005
    desk.server.traps.progress_ttl_s = 0.3  # forgotten while the import still works: each batch takes a second
    desk.server.traps.duplicate_on_repeat = True
    desk.server.traps.terse = terse
    plan = desk.plan(300)
    done = desk.faq("import", str(plan))
    assert done.returncode == 0, done.stderr
    assert desk.questions() == Counter(card(n)["question"] for n in range(1, 301))


def test_the_lock_of_the_base_is_waited_for(desk: Desk) -> None:
    plan = desk.plan(5)
    with desk.server.occupied(desk.base, "others-1"):
        ours = subprocess.Popen(
            desk.command("import", str(plan)), env=desk.environment, cwd=desk.home, stderr=subprocess.PIPE, text=True
        )
        limit = time.monotonic() + PATIENCE_S
        while not any(call.path.endswith("/progress/others-1") for call in desk.server.calls):
            assert ours.poll() is None, "it did not wait"
            assert time.monotonic() < limit
            time.sleep(0.01)
        assert not desk.base.entries
    _, told = ours.communicate(timeout=PATIENCE_S)
    assert ours.returncode == 0, told
    assert len(desk.base.entries) == 5
    assert "busy with import others-1; waiting" in told, "whoever waits sees for what"


def test_replacing_asks_for_the_name_and_keeps_a_backup(desk: Desk) -> None:
    old = {"standard_question": "旧的问题", "answers": ["旧的答案"]}
    desk.server.add(desk.base, old)
    plan = desk.plan(3, "--replace")
    refused = desk.faq("import", str(plan))
    wrong = desk.faq("import", str(plan), "--replace", "别的库")
    assert (refused.returncode, wrong.returncode) == (1, 1)
    assert KB in refused.stderr
    assert len(desk.base.entries) == 1, "nothing was touched"
    done = desk.faq("import", str(plan), "--replace", KB)
    assert done.returncode == 0, done.stderr
    assert len(desk.base.entries) == 3
    [backup] = (desk.home / "out").glob("faq-backup-*.json")
    assert json.loads(backup.read_bytes())[0]["answers"] == ["旧的答案"]


def test_a_killed_replace_is_resumed_to_exactly_the_plan(desk: Desk) -> None:
    for number in range(20):
        desk.server.add(desk.base, {"standard_question": f"旧的问题{number}", "answers": ["旧的答案"]})
    desk.server.traps.entry_s = 0.01
    plan = desk.plan(250, "--replace")
    process = subprocess.Popen(
        desk.command("import", str(plan), "--replace", KB),
        env=desk.environment,
        cwd=desk.home,
        stderr=subprocess.DEVNULL,
    )
    wait_for(lambda: desk.server.tasks, PATIENCE_S)
    process.send_signal(signal.SIGKILL)
    process.wait(PATIENCE_S)
    assert desk.faq("resume", str(plan)).returncode == 1, "the name is asked for again"
    resumed = desk.faq("resume", str(plan), "--replace", KB)
    assert resumed.returncode == 0, resumed.stderr
    assert desk.questions() == Counter(card(n)["question"] for n in range(1, 251))


def test_an_import_that_fails_on_the_server_is_brought_to_its_end_later(desk: Desk) -> None:
    plan = desk.plan(40)
    desk.server.traps.fail_import = True
    failed = desk.faq("import", str(plan))
    assert failed.returncode == 1
    assert "kbw faq resume" in failed.stderr
    desk.server.traps.fail_import = False
    assert desk.faq("resume", str(plan)).returncode == 0
    assert set(desk.questions().values()) == {1}
    assert len(desk.base.entries) == 40


def test_the_next_cards_may_be_planned_into_the_same_file(desk: Desk) -> None:
    assert desk.faq("import", str(desk.plan(3))).returncode == 0
    plan = desk.plan(5)
    done = desk.faq("import", str(plan))
    assert done.returncode == 0, done.stderr
    assert desk.questions() == Counter(card(n)["question"] for n in range(1, 6))
    assert desk.faq("import", str(plan)).returncode == 1, "this one was begun before"


def test_a_plan_made_without_a_look_at_the_base_brings_only_what_is_missing(desk: Desk) -> None:
    desk.server.traps.duplicate_on_repeat = True
    for count in (3, 5):
        done = desk.faq("import", str(desk.plan(count, "--offline")))
        assert done.returncode == 0, done.stderr
    assert desk.questions() == Counter(card(n)["question"] for n in range(1, 6))


def test_dry_run_stores_nothing_and_believes_no_counts(desk: Desk) -> None:
    desk.base.last_counts = {"success_count": 999, "failed_count": 42}
    plan = desk.plan(10)
    done = desk.faq("dry-run", str(plan))
    assert done.returncode == 0, done.stderr
    assert not desk.base.entries
    assert "0 refused" in done.stderr
    assert "999" not in done.stderr
    assert "42" not in done.stderr.replace("2026", "")


def test_bad_cards_are_told_and_no_plan_is_written(desk: Desk) -> None:
    bad = desk.home / "bad.yaml"
    bad.write_text(
        "- question: 同一个问题\n  answers: [a]\n- question: 同一个问题\n  answers: [b]\n- question: 没有答案\n",
        "utf-8",
    )
    plan = desk.home / "plan.json"
    done = desk.faq("plan", str(bad), "--output", str(plan))
    assert done.returncode == 1
    assert "bad.yaml#2" in done.stderr
    assert "bad.yaml#3: no answer" in done.stderr
    assert not plan.exists()


def test_cards_that_are_there_are_left_out(desk: Desk) -> None:
    desk.server.add(desk.base, {"standard_question": card(1)["question"], "answers": card(1)["answers"]})
    plan = desk.plan(3)
    assert sum(len(batch["entries"]) for batch in json.loads(plan.read_bytes())["batches"]) == 2


def test_verify_and_export_and_no_key_anywhere(desk: Desk) -> None:
    plan = desk.plan(30)
    assert desk.faq("import", str(plan)).returncode == 0
    golden = desk.home / "golden.jsonl"
    rows = [
        {"question": "第7号摊主被刁难之后怎么反击呢", "expected": card(7)["question"]},
        {"question": "完全无关的另一件事", "expected": card(8)["question"]},
    ]
    golden.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows), "utf-8")
    done = desk.faq("verify", str(plan), "--golden", str(golden), "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["own"]["asked"], report["own"]["hit_at_1"]) == (15, 1.0)
    assert report["golden"]["zero_hits"] == 0.5
    target = desk.home / "export.json"
    assert desk.faq("export", "--output", str(target)).returncode == 0
    assert len(json.loads(target.read_bytes())) == 30
    assert list((desk.home / "out").glob("*.txt"))
    for path in [path for path in desk.home.rglob("*") if path.is_file()]:
        content = path.read_bytes()
        assert INGEST_KEY.encode() not in content, path
        assert RETRIEVE_KEY.encode() not in content, path


def test_only_one_command_works_on_a_base(desk: Desk) -> None:
    desk.server.traps.entry_s = 1.0
    plan = desk.plan(40)
    first = subprocess.Popen(
        desk.command("import", str(plan)), env=desk.environment, cwd=desk.home, stderr=subprocess.DEVNULL
    )
    try:
        wait_for(lambda: desk.server.tasks, PATIENCE_S)
        second = desk.faq("resume", str(plan))
        assert second.returncode == 1
        assert "another `kbw faq`" in second.stderr
    finally:
        assert first.wait(PATIENCE_S) == 0
    assert len(desk.base.entries) == 40


def test_a_replace_of_the_same_questions_that_never_began_is_not_taken_for_done(desk: Desk) -> None:
    """The usual replace brings new answers to old questions: that the questions are there says nothing."""
    for number in range(1, 4):
        desk.server.add(desk.base, {**card(number), "standard_question": card(number)["question"], "answers": ["旧"]})
    plan = desk.plan(3, "--replace")
    [batch] = json.loads(plan.read_bytes())["batches"]
    begun = {"event": "begin", "batch": 1, "taskId": batch["task_id"], "cards": 3, "mode": "replace"}
    plan.with_suffix(".journal.jsonl").write_text(json.dumps(begun) + "\n", "utf-8")  # killed before it sent anything
    resumed = desk.faq("resume", str(plan), "--replace", KB)
    assert resumed.returncode == 0, resumed.stderr
    assert [entry["answers"] for entry in desk.base.entries] == [card(n)["answers"] for n in range(1, 4)]


def test_a_replace_waits_for_a_busy_base_and_replaces_it_then(desk: Desk) -> None:
    desk.server.add(desk.base, {"standard_question": card(1)["question"], "answers": ["旧"]})
    plan = desk.plan(1, "--replace")
    with desk.server.occupied(desk.base, "others-1"):
        ours = subprocess.Popen(
            desk.command("import", str(plan), "--replace", KB),
            env=desk.environment,
            cwd=desk.home,
            stderr=subprocess.PIPE,
            text=True,
        )
        limit = time.monotonic() + PATIENCE_S
        while not any(call.path.endswith("/progress/others-1") for call in desk.server.calls):
            assert ours.poll() is None, "it did not wait"
            assert time.monotonic() < limit
            time.sleep(0.01)
    _, told = ours.communicate(timeout=PATIENCE_S)
    assert ours.returncode == 0, told
    assert [entry["answers"] for entry in desk.base.entries] == [card(1)["answers"]]


def test_a_dry_run_of_a_replace_is_not_refused_for_what_will_be_gone(desk: Desk) -> None:
    taken = {"standard_question": "旧的问题", "similar_questions": card(1)["similar"], "answers": ["旧的答案"]}
    desk.server.add(desk.base, taken)
    plan = desk.plan(3, "--replace")
    done = desk.faq("dry-run", str(plan))
    assert done.returncode == 0, done.stderr
    assert [entry["answers"] for entry in desk.base.entries] == [["旧的答案"]], "nothing was touched"
    assert list((desk.home / "out").glob("faq-backup-*.json"))


def test_a_card_that_was_taken_in_part_stays_red_after_a_resume(desk: Desk) -> None:
    plan = desk.plan(3)
    taken = {"standard_question": "后来的问题", "similar_questions": card(2)["similar"], "answers": ["别的答案"]}
    desk.server.add(desk.base, taken)
    done = desk.faq("import", str(plan))
    assert done.returncode == 1
    assert "1条相似问被移除" in done.stderr
    [log] = (desk.home / "out").glob("faq-import-*.txt")
    assert "1条相似问被移除" in log.read_text("utf-8"), "the log says why, too"
    for command in ("resume", "verify"):
        again = desk.faq(command, str(plan))
        assert again.returncode == 1, again.stderr
        assert "0 missing, 0 twice, 0 with other answers, 1 without some of their questions" in again.stderr


def test_verify_looks_at_three_entries_whatever_jobs_ask_for(desk: Desk) -> None:
    plan = desk.plan(3)
    assert desk.faq("import", str(plan)).returncode == 0
    golden = desk.home / "golden.jsonl"
    row = {"question": card(1)["question"], "expected": card(2)["question"]}
    golden.write_text(json.dumps(row, ensure_ascii=False), "utf-8")
    desk.more["KBW_WEKNORA_MATCH_COUNT"] = "1"
    done = desk.faq("verify", str(plan), "--golden", str(golden), "--json")
    assert done.returncode == 0, done.stderr
    assert (found := json.loads(done.stdout)["golden"])["hit_at_1"] == 0.0
    assert found["hit_at_3"] == 1.0
