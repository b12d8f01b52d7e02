"""Asking the model until its reply can be used, a bounded number of times; must not know what is asked nor settle it.

Each call: keep the raw reply, read it, judge it. What is unreadable or breaks a rule goes back with the list of what
was wrong, in a new session, at most twice (CONTRACT §4.5). A restart of the stage asks anew beside what was kept.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Generic, Literal, Protocol, TypeVar

from tasks.contract.selection import ReadLevel
from tasks.contract.shape import JsonObject
from tasks.errors import Code, JobError, PermanentError
from tasks.ports import Clock, JobFolder, ModelCall, ModelDriver, RawReply
from tasks.prompts.prompt import Prompt, Repair
from tasks.prompts.sections import Section
from tasks.rules.answer import Violation
from tasks.rules.budget import cut_text, fit_sections
from tasks.rules.reply_fault import ReplyFault

MAX_REASKS = 2
MAX_PREVIOUS_CHARS = 20_000
MAX_PROBLEMS = 20
CALLS = "calls.jsonl"
CUT_MARK = "\n（以下因篇幅限制略去）"

_SHORTEST_CALL_S = 1.0
_NONCE_BYTES = 8
_RESERVED = ("agent:", "subagent:", "cron:", "acp:", "hook:")  # the gateway answers 400 (facts/openclaw.md §2)

SessionMode = Literal["task", "stage", "attempt"]


class ReadReply(Protocol):
    """What a reply is read as: any value that says how far the reply had to be helped."""

    @property
    def read_level(self) -> ReadLevel:
        """CONTRACT §4.3."""


R = TypeVar("R", bound=ReadReply)


def as_it_came(text: str) -> str:
    """Raw replies are kept as they are."""
    return text


@dataclass(frozen=True)
class Inquiry(Generic[R]):
    """What is asked and how a reply is taken.

    ``prompt`` gets the nonce of this call and, on a re-ask, what was wrong. ``read`` gets a reply and the name
    of its file and raises ``ReplyFault``. ``judge`` lists what the model has to mend; ``max_mends`` is how often a
    readable reply may go back for that.
    """

    prompt: Callable[[str, Repair | None], Prompt]
    read: Callable[[RawReply, str], R]
    judge: Callable[[R], Sequence[Violation]]
    schema_name: str
    schema: JsonObject
    max_mends: int = MAX_REASKS


@dataclass(frozen=True)
class _Turn(Generic[R]):
    """One call and what came of it: a readable reply, or the fault that makes it unreadable."""

    raw: RawReply
    reply: R | None = None
    fault: ReplyFault | None = None
    problems: tuple[Violation, ...] = ()

    @property
    def repair(self) -> Repair:
        """What the next call has to say about this one."""
        told = [problem.message for problem in self.problems[:MAX_PROBLEMS]]
        return Repair(told, cut_text(self.raw.text, MAX_PREVIOUS_CHARS).text)


@dataclass(frozen=True)
class Asker:
    """One stage of one job at the model. ``deadline`` by the clock's monotonic time; ``timeout_s`` for one call.

    ``generation`` counts replays. ``guard`` is asked before each call and raises once the right to work is lost.
    """

    stage: str
    task_id: str
    question: str
    model: ModelDriver
    folder: JobFolder
    clock: Clock
    deadline: float
    generation: int = 0
    timeout_s: float = 300.0
    session_mode: SessionMode = "task"
    traceparent: str = ""
    guard: Callable[[], None] = field(default=lambda: None)
    heard: Callable[[RawReply], None] = field(default=lambda _reply: None)
    """Told of every reply, for those who count."""
    shown: Callable[[str], str] = as_it_came
    """What of a raw reply may lie in ``replies/``: one that was written beside foreign cards may quote them."""

    def __call__(self, inquiry: Inquiry[R]) -> R:
        """The first reply without fault or violation, else the last readable one, for ``apply`` to settle.

        Raises the ``ReplyFault``'s code when no reply could be read, ``DEADLINE`` when no time is left to ask, and
        what the driver raises.
        """
        readable: R | None = None
        turn: _Turn[R] | None = None
        mends = 0
        first = self._next_number()
        for again in range(MAX_REASKS + 1):
            if self._seconds_left() < _SHORTEST_CALL_S:
                break
            turn = self._turn(inquiry, first + again, again, turn.repair if turn else None)
            readable = turn.reply or readable
            if not turn.problems or (readable and mends == inquiry.max_mends):
                break
            mends += readable is not None
        if readable is not None:
            return readable
        if turn is None or turn.fault is None or self._seconds_left() < _SHORTEST_CALL_S:
            raise _out_of_time(self.stage, turn.fault if turn else None)
        raise PermanentError(
            turn.fault.code,
            en=f"no reply of the model could be read; the last one, {turn.fault.en}",
            zh=f"模型多次给出无法读取的回复，请重新提问（{turn.fault.zh}）",
        ) from turn.fault

    def _turn(self, inquiry: Inquiry[R], number: int, again: int, repair: Repair | None) -> _Turn[R]:
        """One call: the raw reply is on disk before anybody looks at it, the journal knows it before anybody acts."""
        prompt = inquiry.prompt(self.clock.token(_NONCE_BYTES), repair)
        self.guard()
        call = ModelCall(
            stage=self.stage,
            system=prompt.system,
            user=prompt.user,
            schema_name=inquiry.schema_name,
            schema=inquiry.schema,
            session=self._session(number, again),
            timeout=max(_SHORTEST_CALL_S, min(self.timeout_s, self._seconds_left())),
            question=self.question,
            traceparent=self.traceparent,
        )
        started = self.clock.monotonic()
        try:
            raw = self.model.complete(call)
        except JobError as error:
            nothing = _Turn[R](RawReply("", "", "", status=0), problems=(Violation(error.code, error.zh),))
            self._journal(call.session, number, nothing, self.clock.monotonic() - started)
            raise
        took = self.clock.monotonic() - started
        self.heard(raw)
        self.folder.write(_reply_file(self.stage, number), self.shown(raw.text).encode(errors="backslashreplace"))
        turn = _judged(inquiry, raw, _reply_file(self.stage, number))
        self._journal(call.session, number, turn, took)
        return turn

    def _journal(self, session: str, number: int, turn: _Turn[R], took_s: float) -> None:
        raw = turn.raw
        line: JsonObject = {
            "at": datetime.fromtimestamp(self.clock.now(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "stage": self.stage,
            "n": number,
            "driver": self.model.name,
            "model": raw.model,
            "session": session,
            "status": raw.status,
            "finishReason": raw.finish_reason,
            "promptTokens": raw.prompt_tokens,
            "completionTokens": raw.completion_tokens,
            "ms": round(took_s * 1000),
            "readLevel": turn.reply.read_level if turn.reply else "",
            "violations": [problem.code for problem in turn.problems],
        }
        self.folder.append(CALLS, line)

    def _session(self, number: int, again: int) -> str:
        """The session key of CONTRACT §8: the taskId, ``.g<n>`` after a replay, ``.r1`` and ``.r2`` for re-asks."""
        key = self.task_id
        if self.session_mode != "task":
            key += f".{self.stage}"
        if self.generation:
            key += f".g{self.generation}"
        if self.session_mode == "attempt":
            key += f".{number}"
        elif again:
            key += f".r{again}"
        return f"kbw-{key}" if key.lower().startswith(_RESERVED) else key

    def _seconds_left(self) -> float:
        return self.deadline - self.clock.monotonic()

    def _next_number(self) -> int:
        """One more than any call of this stage that left a trace. An empty reply leaves only its journal line."""
        number = 1
        for line in (self.folder.read(CALLS) or b"").splitlines():
            try:
                entry = json.loads(line)
            except ValueError:
                continue  # the torn line of a killed writer
            if isinstance(entry, dict) and entry.get("stage") == self.stage and isinstance(entry.get("n"), int):
                number = max(number, entry["n"] + 1)
        while self.folder.read(_reply_file(self.stage, number)) is not None:
            number += 1
        return number


def fitted(sections: Sequence[Section], max_chars: int, repair: Repair | None) -> list[Section]:
    """The sections cut so that they and the previous reply stay within ``max_chars``; what got no room is left out."""
    room = max_chars - (len(repair.previous) if repair else 0)
    cuts = fit_sections([(section.text, section.rank) for section in sections], room)
    return [
        replace(section, text=short.text + (CUT_MARK if short.truncated else ""))
        for section, short in zip(sections, cuts, strict=True)
        if short.text
    ]


def _judged(inquiry: Inquiry[R], raw: RawReply, name: str) -> _Turn[R]:
    try:
        reply = inquiry.read(raw, name)
    except ReplyFault as fault:
        return _Turn(raw, fault=fault, problems=(Violation(fault.code, fault.zh),))
    return _Turn(raw, reply=reply, problems=tuple(inquiry.judge(reply)))


def _reply_file(stage: str, number: int) -> str:
    return f"replies/{stage}-{number}.txt"


def _out_of_time(stage: str, fault: ReplyFault | None) -> PermanentError:
    before_en, before_zh = (f"; the last reply: {fault.en}", f"；上一次回复：{fault.zh}") if fault else ("", "")
    return PermanentError(
        Code.DEADLINE,
        en=f"no time is left before the deadline to ask the model at stage {stage}{before_en}",
        zh=f"任务期限已到，来不及在 {stage} 阶段调用模型{before_zh}；请重试或放宽 deadlineSeconds",
    )
