"""The loop around the model: each reply is kept, what is wrong goes back at most twice, nothing is asked for ever."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tasks.contract.selection import PageSelection, ReadLevel
from tasks.errors import Code, FencedError, PermanentError, TransientError
from tasks.ports import RawReply
from tasks.prompts.prompt import Prompt, Repair
from tasks.prompts.sections import Section
from tasks.rules.answer import Violation
from tasks.rules.reply import read_selection
from tasks.stages.ask import CUT_MARK, Asker, Inquiry, fitted
from tests.fakes_folder import MemoryFolder
from tests.fakes_model import FakeModel, StillClock
from tests.model_shapes import Reply, completion

GOOD = '{"rationale": "好", "selectedPages": []}'
BAD = '{"rationale": "坏", "selectedPages": []}'
NO_JSON = "我不会。"


class World:
    """One job's way to the model, with everything it left behind."""

    def __init__(self, *replies: Reply | Exception, **more: Any) -> None:
        self.model = FakeModel()
        self.model.play(*replies)
        self.folder: MemoryFolder = more.pop("folder", None) or MemoryFolder()
        self.clock = StillClock()
        self.repairs: list[Repair | None] = []
        self.nonces: list[str] = []
        settings: dict[str, Any] = {"stage": "select", "task_id": "query-1-2", "question": "问", "timeout_s": 300.0}
        self.ask = Asker(
            **(settings | {"deadline": self.clock.monotonic() + 900} | more),
            model=self.model,
            folder=self.folder,
            clock=self.clock,
        )

    def inquire(self, **more: Any) -> PageSelection:
        def prompt(nonce: str, repair: Repair | None) -> Prompt:
            self.nonces.append(nonce)
            self.repairs.append(repair)
            return Prompt("系统", "用户")

        return self.ask(Inquiry(prompt, read, judge, schema_name="page_selection", schema={"type": "object"}, **more))

    @property
    def sessions(self) -> list[str]:
        return [call.session for call in self.model.calls]

    @property
    def replies(self) -> dict[str, str]:
        return {name: data.decode() for name, data in self.folder.files.items() if name.startswith("replies/")}


def read(raw: RawReply, name: str) -> PageSelection:
    return read_selection(raw.text, finish_reason=raw.finish_reason, name=name)


def judge(selection: PageSelection) -> list[Violation]:
    return [Violation("BAD", "内容是坏的")] if selection.rationale.startswith("坏") else []


def failure(world: World, **more: Any) -> PermanentError:
    with pytest.raises(PermanentError) as caught:
        world.inquire(**more)
    return caught.value


def test_a_good_reply_is_taken_kept_and_noted() -> None:
    world = World(completion(GOOD, model="m-1"))
    assert world.inquire().rationale == "好"
    assert world.replies == {"replies/select-1.txt": GOOD}
    assert world.folder.log == ["replies/select-1.txt", "calls.jsonl"]
    assert world.folder.journal("calls.jsonl") == [
        {
            "at": "2027-01-15T08:00:00Z",
            "stage": "select",
            "n": 1,
            "driver": "openai",
            "model": "m-1",
            "session": "query-1-2",
            "status": 200,
            "finishReason": "stop",
            "promptTokens": 11,
            "completionTokens": 7,
            "ms": 0,
            "readLevel": "exact",
            "violations": [],
        }
    ]
    call = world.model.calls[0]
    assert (call.stage, call.system, call.user, call.question, call.timeout) == ("select", "系统", "用户", "问", 300.0)


def test_an_unreadable_reply_goes_back_with_what_was_wrong_in_a_new_session() -> None:
    world = World(completion(NO_JSON), completion(GOOD))
    assert world.inquire().rationale == "好"
    assert world.sessions == ["query-1-2", "query-1-2.r1"]
    first, second = world.repairs
    assert first is None
    assert second is not None
    assert "不是合法的 JSON" in second.problems[0]
    assert second.previous == NO_JSON
    assert len(set(world.nonces)) == 2


def test_three_unreadable_replies_fail_with_the_last_fault() -> None:
    world = World(completion(NO_JSON), completion(""), completion(GOOD[:-3]))
    error = failure(world)
    assert (error.code, "replies/select-3.txt" in error.en) == (Code.TRUNCATED, True)
    assert world.sessions == ["query-1-2", "query-1-2.r1", "query-1-2.r2"]
    assert world.replies["replies/select-2.txt"] == ""
    assert [line["violations"] for line in world.folder.journal("calls.jsonl")] == [
        ["INVALID_JSON"],
        ["EMPTY_FILE"],
        ["TRUNCATED"],
    ]


def test_a_reply_that_the_server_cut_is_asked_for_again() -> None:
    world = World(completion(GOOD, finish_reason="length"), completion(GOOD))
    world.inquire()
    assert [line["violations"] for line in world.folder.journal("calls.jsonl")] == [["TRUNCATED"], []]


def test_a_violation_goes_back_twice_and_the_last_readable_reply_is_returned() -> None:
    second = BAD.replace("坏", "坏二")
    world = World(completion(BAD), completion(second), completion(NO_JSON))
    assert world.inquire().rationale == "坏二"
    assert len(world.model.calls) == 3
    assert world.repairs[1] is not None
    assert list(world.repairs[1].problems) == ["内容是坏的"]


def test_a_mended_reply_ends_the_asking() -> None:
    world = World(completion(BAD), completion(GOOD))
    assert world.inquire().rationale == "好"
    assert len(world.model.calls) == 2


@pytest.mark.parametrize("second", [BAD, NO_JSON])
def test_with_one_mend_allowed_a_readable_reply_goes_back_once(second: str) -> None:
    world = World(completion(BAD), completion(second), completion(GOOD))
    assert world.inquire(max_mends=1).rationale == "坏"
    assert len(world.model.calls) == 2


def test_an_unreadable_reply_does_not_use_up_the_one_mend() -> None:
    world = World(completion(NO_JSON), completion(BAD), completion(GOOD))
    assert world.inquire(max_mends=1).rationale == "好"


def test_a_restart_of_the_stage_overwrites_nothing() -> None:
    folder = MemoryFolder()
    World(completion(""), completion(GOOD), folder=folder).inquire()
    folder.files["calls.jsonl"] += b'{"stage": "select", "n": 9'  # torn by a kill
    folder.files["replies/select-3.txt"] = b"kept, but the journal line was lost"
    folder.files["replies/answer-7.txt"] = b"of another stage"
    again = World(completion(GOOD), folder=folder)
    again.inquire()
    assert sorted(again.replies) == [
        f"replies/{name}.txt" for name in ("answer-7", "select-1", "select-2", "select-3", "select-4")
    ]
    assert again.sessions == ["query-1-2"]


@pytest.mark.parametrize(
    ("settings", "sessions"),
    [
        ({}, ["query-1-2", "query-1-2.r1"]),
        ({"generation": 3}, ["query-1-2.g3", "query-1-2.g3.r1"]),
        ({"session_mode": "stage"}, ["query-1-2.select", "query-1-2.select.r1"]),
        ({"session_mode": "attempt", "generation": 1}, ["query-1-2.select.g1.1", "query-1-2.select.g1.2"]),
        ({"task_id": "Agent:1-2"}, ["kbw-Agent:1-2", "kbw-Agent:1-2.r1"]),
        ({"task_id": "cron:x"}, ["kbw-cron:x", "kbw-cron:x.r1"]),
    ],
    ids=["task", "replay", "stage", "attempt", "reserved", "reserved-too"],
)
def test_session_keys(settings: dict[str, Any], sessions: list[str]) -> None:
    world = World(completion(NO_JSON), completion(GOOD), **settings)
    world.inquire()
    assert world.sessions == sessions


def test_a_call_never_outlives_the_deadline() -> None:
    world = World(completion(GOOD), timeout_s=300.0)
    object.__setattr__(world.ask, "deadline", world.clock.monotonic() + 42)
    world.inquire()
    assert world.model.calls[0].timeout == 42


@pytest.mark.parametrize("step", [86_400.0, -86_400.0])
def test_a_clock_that_is_set_takes_and_gives_no_time(step: float) -> None:
    world = World(completion(GOOD), timeout_s=2_000.0)
    world.clock.step = step
    world.inquire()
    assert world.model.calls[0].timeout == 900


def test_no_call_is_made_when_no_time_is_left() -> None:
    world = World(completion(GOOD), deadline=0.0)
    assert failure(world).code is Code.DEADLINE
    assert world.model.calls == []


def slow(world: World, text: str) -> Callable[[Any], str]:
    def reply(_: Any) -> str:
        world.clock.time += 899.5
        return text

    return reply


@pytest.mark.parametrize(("text", "code"), [(BAD, None), (NO_JSON, Code.DEADLINE)])
def test_when_time_runs_out_a_readable_reply_is_better_than_none(text: str, code: Code | None) -> None:
    world = World()
    world.model = FakeModel(by_call=slow(world, text))
    object.__setattr__(world.ask, "model", world.model)
    if code is None:
        assert world.inquire().rationale == "坏"
    else:
        error = failure(world)
        assert (error.code, "INVALID_JSON" in error.en or "not valid JSON" in error.en) == (code, True)
    assert len(world.model.calls) == 1


def test_a_driver_error_is_noted_and_passed_on() -> None:
    refused = TransientError(Code.MODEL_UNREACHABLE, en="host down", zh="模型暂时不可用")
    world = World(refused)
    with pytest.raises(TransientError):
        world.inquire()
    line = world.folder.journal("calls.jsonl")[0]
    assert (line["status"], line["violations"], line["readLevel"]) == (0, ["MODEL_UNREACHABLE"], "")
    assert world.replies == {}


def test_a_lost_lease_stops_before_the_call() -> None:
    def lost() -> None:
        raise FencedError

    world = World(completion(GOOD), guard=lost)
    with pytest.raises(FencedError):
        world.inquire()
    assert world.model.calls == []


def test_a_reply_with_half_a_character_is_kept_readable() -> None:
    world = World()
    world.model = FakeModel(by_call=lambda call: '{"rationale": "\ud83d", "selectedPages": []}')
    object.__setattr__(world.ask, "model", world.model)
    assert world.inquire().read_level is ReadLevel.NORMALIZED
    assert "\\ud83d" in world.replies["replies/select-1.txt"]


def test_a_long_previous_reply_goes_back_cut() -> None:
    world = World(completion("长" * 100_000), completion(GOOD))
    world.inquire()
    assert world.repairs[1] is not None
    assert len(world.repairs[1].previous) == 20_000


def test_sections_make_room_for_the_previous_reply() -> None:
    sections = [Section("问题", "问" * 10), Section("索引", "索" * 100, rank=5), Section("卡片", "卡" * 40, rank=3)]
    shown = fitted(sections, 60, Repair([], "旧" * 10))
    assert [(section.label, section.text) for section in shown] == [("问题", "问" * 10), ("卡片", "卡" * 40)]
    cut = fitted(sections, 60, None)
    assert [section.text for section in cut] == ["问" * 10, "索" * 10 + CUT_MARK, "卡" * 40]


def test_the_journal_is_strict_json() -> None:
    world = World(completion(GOOD))
    world.inquire()
    assert json.loads(world.folder.files["calls.jsonl"])
