"""Dead letters of both kinds, which jobs are meant, and how operators' commands are spelled."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from tasks.contract.outcome import QaPage
from tasks.errors import Code, PermanentError, StoreUnavailableError
from tasks.ports import Change, RawReply
from tests.fakes import REPO, FailingAt, World, payload
from tests.model_calls import CALL
from worker.adapters.job_store.dead_stream import DeadEntry
from worker.cli import main
from worker.counting import CountedModel, CountedWriter, count_landed
from worker.gauges import Gauges
from worker.ops.choosing import Choice, chosen
from worker.ops.dead import dead_letters, drop_letter, replay_letter
from worker.ops.desk import Desk
from worker.ops.replay import ReplayOrder

TASK = "query-c1-m1"
ENTRY = DeadEntry(
    "5-0", at=10.0, task_id="", code="BAD_PAYLOAD", reason="no JSON", origin="4-0", size=7, content="{no js"
)


@dataclass
class MemoryDeadStream:
    """``DeadStream`` in memory. ``originals``: payloads that can still be had whole."""

    letters: dict[str, DeadEntry] = field(default_factory=dict)
    originals: dict[str, bytes] = field(default_factory=dict)
    sent: list[bytes] = field(default_factory=list)

    def count(self) -> int:
        return len(self.letters)

    def entries(self, limit: int) -> list[DeadEntry]:
        return list(self.letters.values())[:limit]

    def get(self, entry_id: str) -> DeadEntry | None:
        return self.letters.get(entry_id)

    def original(self, entry: DeadEntry) -> bytes | None:
        return self.originals.get(entry.entry_id)

    def submit_again(self, entry: DeadEntry, payload: bytes) -> str:
        del self.letters[entry.entry_id]
        self.sent.append(payload)
        return "9-0"

    def drop(self, entry_id: str) -> bool:
        return self.letters.pop(entry_id, None) is not None


def failed_world() -> tuple[World, Desk]:
    world = World()
    world.model = FailingAt(world.model, "complete", PermanentError(Code.MODEL_AUTH, en="refused", zh="密钥被拒绝"))
    world.accept(payload())
    world.settle()
    return world, Desk(world.records, world.ports, world.wake, "operator:ann@desk")


# ---------------------------------------------------------------- dead letters


def test_both_kinds_are_listed_oldest_first_and_filtered_alike() -> None:
    _, desk = failed_world()
    stream = MemoryDeadStream({"5-0": ENTRY})
    every = Choice(("failed",), limit=10)

    assert [(letter.name, letter.kind) for letter in dead_letters(desk, stream, every)] == [  # type: ignore[arg-type]
        ("5-0", "entry"),
        (TASK, "job"),
    ]
    for choice, names in (
        (Choice(("failed",), code="MODEL_AUTH"), [TASK]),
        (Choice(("failed",), code="BAD_PAYLOAD"), ["5-0"]),
        (Choice(("failed",), stage="select"), [TASK]),
        (Choice(("failed",), older_s=3_600.0), ["5-0"]),
        (Choice(("failed",), limit=1), ["5-0"]),
    ):
        assert [letter.name for letter in dead_letters(desk, stream, choice)] == names  # type: ignore[arg-type]


def test_a_jobs_letter_is_replayed_an_entrys_payload_is_sent_again() -> None:
    world, desk = failed_world()
    stream = MemoryDeadStream({"5-0": ENTRY}, {"5-0": b"{no json"})

    assert replay_letter(desk, stream, TASK, ReplayOrder()).outcome == "replayed"  # type: ignore[arg-type]
    told = replay_letter(desk, stream, "5-0", ReplayOrder())  # type: ignore[arg-type]
    world.settle()

    assert world.result(TASK)["success"]
    assert (told.outcome, told.stage, stream.sent, stream.letters) == ("replayed", "entry 9-0", [b"{no json"], {})
    assert desk.records.views.dead() == []


def test_an_entry_of_which_only_the_beginning_was_kept_is_not_sent_again() -> None:
    _, desk = failed_world()
    stream = MemoryDeadStream({"5-0": ENTRY})
    told = replay_letter(desk, stream, "5-0", ReplayOrder())  # type: ignore[arg-type]
    assert (told.outcome, told.reason) == (
        "refused", "only the beginning of its 7 bytes was kept: have it sent again",
    )  # fmt: skip
    assert replay_letter(desk, stream, "6-0", ReplayOrder()).outcome == "refused"  # type: ignore[arg-type]
    assert stream.letters == {"5-0": ENTRY}


def test_a_dry_run_sends_nothing() -> None:
    _, desk = failed_world()
    stream = MemoryDeadStream({"5-0": ENTRY}, {"5-0": b"{}"})
    assert replay_letter(desk, stream, "5-0", ReplayOrder(dry_run=True)).outcome == "would_replay"  # type: ignore[arg-type]
    assert (stream.sent, len(stream.letters)) == ([], 1)


def test_a_dropped_job_keeps_its_record_and_result_and_its_journal_says_who() -> None:
    world, desk = failed_world()
    stream = MemoryDeadStream({"5-0": ENTRY})
    assert drop_letter(desk, stream, TASK)  # type: ignore[arg-type]
    assert drop_letter(desk, stream, "5-0")  # type: ignore[arg-type]
    assert not drop_letter(desk, stream, TASK)  # type: ignore[arg-type]
    assert world.record(TASK).state == "failed"
    assert world.result(TASK)["errorCode"] == "MODEL_AUTH"
    lines = world.folder(TASK).journal("events.jsonl")
    assert [line["actor"] for line in lines if line["event"] == "drop"] == ["operator:ann@desk"]


# ---------------------------------------------------------------- choosing


def test_jobs_are_chosen_by_stage_code_and_age() -> None:
    world, _ = failed_world()
    world.clock.sleep(3_600.0)
    world.accept(payload(2))
    now = world.clock.now()

    def ids(*states: str, **conditions: object) -> list[str]:
        return [r.task_id for r in chosen(world.records, Choice(states, **conditions), now)]  # type: ignore[arg-type]

    assert ids("queued", "failed") == ["query-c2-m2", TASK]
    assert ids("queued", "failed", limit=1) == ["query-c2-m2"]
    assert ids("queued", "failed", older_s=1_800.0) == [TASK]
    assert ids("failed", stage="select", code="MODEL_AUTH") == [TASK]
    assert ids("failed", stage="publish") == []
    assert ids("queued", stage="prepare") == ["query-c2-m2"]


# ---------------------------------------------------------------- counting


def test_calls_and_tokens_are_counted_by_endpoint_and_faults_by_code() -> None:
    world = World()
    driver = SimpleNamespace(
        name="openai", endpoint="http://m/v1", complete=lambda _call: RawReply("x", "stop", "m", 200, 11, 7)
    )
    model = CountedModel(
        FailingAt(driver, "complete", PermanentError(Code.MODEL_AUTH, en="no", zh="不")), world.records
    )
    with pytest.raises(PermanentError):
        model.complete(CALL)
    assert model.complete(CALL).text == "x"
    assert {name: n for name, n in world.records.figures().items() if "http" in name} == {
        "model_calls/MODEL_AUTH/http://m/v1": 1,
        "model_calls/ok/http://m/v1": 1,
        "tokens/prompt/http://m/v1": 11,
        "tokens/completion/http://m/v1": 7,
    }
    assert (model.name, model.endpoint) == ("openai", "http://m/v1")


def test_a_count_that_is_lost_costs_no_reply() -> None:
    driver = SimpleNamespace(name="openai", endpoint="e", complete=lambda _call: RawReply("paid for", "stop", "m"))
    census = FailingAt(World().records, "tally", StoreUnavailableError("Redis is away"))
    assert CountedModel(driver, census).complete(CALL).text == "paid for"


def test_pages_are_counted_against_the_commits_they_share() -> None:
    world = World()
    world.writer.landed = partial(count_landed, world.records)
    world.writer = CountedWriter(world.writer, world.records)
    for number in range(3):
        world.accept(payload(number))
    world.settle()
    figures = world.records.figures()
    assert (figures["pages"], figures["pages_refused"]) == (3, 0)
    assert figures["commits"] == len(world.writer.writer.repos[REPO].history) <= 3


def test_a_page_that_an_earlier_attempt_committed_is_counted_once() -> None:
    world = World()
    world.writer.landed = partial(count_landed, world.records)
    counted = CountedWriter(world.writer, world.records)
    page = QaPage(id="qa-1", path="qa/a.md", title="题", frontmatter={}, body="文", catalog_entry={})
    for _ in range(2):  # the second one finds the commit of the first
        assert counted.commit(REPO, [Change(TASK, page)])[0].commit_id
    figures = world.records.figures()
    assert (figures["pages"], figures["commits"]) == (1, 1)


# ---------------------------------------------------------------- gauges and commands


def test_while_the_record_is_away_nobody_knows_whether_work_is_consumed_but_nothing_is_ready(tmp_path) -> None:  # type: ignore[no-untyped-def]
    def away(*_: object) -> None:
        raise StoreUnavailableError("Redis cannot be reached")

    world, _ = failed_world()
    views = SimpleNamespace(now=away, counts=world.records.counts)
    census = SimpleNamespace(open_jobs=away)
    gauges = Gauges(views, world.records, census, MemoryDeadStream(), tmp_path, "http://git", 60.0)  # type: ignore[arg-type]
    assert gauges.live() == (True, {"live": True, "reason": "unknown: Redis cannot be reached"})
    ready, facts = gauges.ready()
    assert not ready
    assert facts["checks"]["redis"] == "Redis cannot be reached"
    assert "share unmounted" in facts["checks"]["shared"]


def test_a_share_that_saw_no_job_yet_is_ready_when_it_takes_files(tmp_path) -> None:  # type: ignore[no-untyped-def]
    world = World()
    census = SimpleNamespace(now=world.clock.now)
    gauges = Gauges(world.records, world.records, census, MemoryDeadStream(), tmp_path, "http://git", 60.0)  # type: ignore[arg-type]
    assert gauges.ready()[0]
    assert list(tmp_path.iterdir()) == [], "a probe leaves nothing behind, nor makes a folder of ours"
    world.accept(payload())
    assert "share unmounted" in gauges.ready()[1]["checks"]["shared"]


def test_metrics_come_out_of_the_record_whole(tmp_path) -> None:  # type: ignore[no-untyped-def]
    world, _ = failed_world()
    world.accept(payload(2))
    stream = MemoryDeadStream({"5-0": ENTRY})
    text = Gauges(world.records, world.records, world.records, stream, tmp_path, "", 60.0).text()  # type: ignore[arg-type]
    assert 'kbw_jobs{state="failed"} 1\n' in text
    assert 'kbw_backlog{class="io"} 1\n' in text
    assert 'kbw_dead_letters{kind="job"} 1\nkbw_dead_letters{kind="entry"} 1\n' in text
    assert TASK not in text


@pytest.mark.parametrize(
    "arguments",
    [
        "replay",
        "replay query-1-1 --state failed",
        "replay --state queued",
        "replay query-1-1 --deadline-seconds 5",
        "dlq replay",
        "dlq drop",
        "dlq drop query-1-1 --all",
        "cancel",
        "list --older yesterday",
        "list --older 1h30",
        "prune --older-than 5",
        "health well",
    ],
)
def test_what_is_spelled_wrong_is_wrong_usage(arguments: str) -> None:
    told = CliRunner().invoke(main, arguments.split(), prog_name="kbw")
    assert told.exit_code == 2, told.output
    assert told.output.startswith("Usage: kbw ")
