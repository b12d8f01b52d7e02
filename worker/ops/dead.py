"""``kbw dlq``: jobs that failed for good and stream entries that never became a job; must not lose either unasked."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import click

from tasks.ports import Record
from tasks.rules.explain import explain
from worker.adapters.job_store.dead_stream import DeadEntry, DeadStream
from worker.bootstrap import Workshop, workshop
from worker.ops.choosing import SCANNED, Choice
from worker.ops.desk import Desk, open_desk
from worker.ops.failure import OperationFailedError
from worker.ops.inspect import show_job
from worker.ops.replay import Replay, ReplayOrder, ask_for_yes, replay, tell_replays
from worker.settings import Settings

ENTRY_ID = re.compile(r"\d+-\d+")


@dataclass(frozen=True)
class DeadLetter:
    """One of either kind. ``name``: the taskId, or the id of the stream's entry."""

    name: str
    kind: str
    at: float
    code: str
    stage: str
    reason: str
    task_id: str


def dead_letters(desk: Desk, stream: DeadStream, choice: Choice) -> list[DeadLetter]:
    """Both kinds, oldest first."""
    views, now = desk.records.views, desk.now()
    jobs = [record for task_id in views.dead(SCANNED) if (record := views.get(task_id))]
    letters = [_of_job(record) for record in jobs if choice.takes(record, now)]
    letters += [_of_entry(entry) for entry in stream.entries(SCANNED) if _takes(choice, entry, now)]
    return sorted(letters, key=lambda letter: letter.at)[: choice.limit]


def _takes(choice: Choice, entry: DeadEntry, now: float) -> bool:
    fits = not choice.stage and choice.code in ("", entry.code)
    return fits and now - entry.at >= choice.older_s


def _of_job(record: Record) -> DeadLetter:
    return DeadLetter(
        record.task_id, "job", record.finished, record.code, record.failed_stage, record.error, record.task_id
    )


def _of_entry(entry: DeadEntry) -> DeadLetter:
    return DeadLetter(entry.entry_id, "entry", entry.at, entry.code, "", entry.reason, entry.task_id)


def replay_letter(desk: Desk, stream: DeadStream, name: str, order: ReplayOrder) -> Replay:
    """A job is replayed from where it failed; an entry's payload goes into the jobs' stream again."""
    if not ENTRY_ID.fullmatch(name):
        return replay(desk, name, order)
    entry = stream.get(name)
    if entry is None:
        return Replay(name, "refused", reason="no such dead letter")
    payload = stream.original(entry)
    if payload is None:
        reason = f"only the beginning of its {entry.size} bytes was kept: have it sent again"
        return Replay(name, "refused", reason=reason)
    if order.dry_run:
        return Replay(name, "would_replay", "intake")
    return Replay(name, "replayed", f"entry {stream.submit_again(entry, payload)}")


def drop_letter(desk: Desk, stream: DeadStream, name: str) -> bool:
    """Off the list. A job's record, folder and result stay; an entry is gone."""
    if ENTRY_ID.fullmatch(name):
        return stream.drop(name)
    dropped = desk.records.archive.drop(name)
    if dropped and (record := desk.records.views.get(name)):
        desk.note(record, "drop")
    return dropped


# ---------------------------------------------------------------- the commands


def list_dead(settings: Settings, choice: Mapping[str, Any], *, as_json: bool) -> int:
    """``kbw dlq list``."""
    desk, stream = _open(workshop(settings))
    letters = dead_letters(desk, stream, _choice(choice))
    if as_json:
        click.echo(json.dumps([asdict(letter) for letter in letters], ensure_ascii=False, indent=2))
        return 0
    for letter in letters:
        click.echo(f"{letter.name}  {letter.kind:<5} {letter.stage or '-':<8} {letter.code}  {letter.reason}"[:200])
    click.echo(f"{len(letters)} dead letters")
    return 0


def show_dead(settings: Settings, name: str, *, as_json: bool) -> int:
    """``kbw dlq show``."""
    if not ENTRY_ID.fullmatch(name):
        return show_job(settings, name, as_json=as_json)
    _, stream = _open(workshop(settings))
    entry = stream.get(name)
    if entry is None:
        raise OperationFailedError(f"no dead letter {name}")
    if as_json:
        click.echo(json.dumps(asdict(entry), ensure_ascii=False, indent=2))
        return 0
    for told, value in (("entry", entry.entry_id), ("task", entry.task_id), ("refused", entry.origin)):
        click.echo(f"  {told:<9} {value or '-'}")
    click.echo(f"  error     {entry.code}: {entry.reason}\n  to do     {explain(entry.code).cure_en}")
    click.echo(f"  content   {entry.size} bytes\n{entry.content}")
    return 0


def replay_dead(settings: Settings, names: Sequence[str], options: Mapping[str, Any], *, as_json: bool) -> int:
    """``kbw dlq replay``."""
    desk, stream = _open(workshop(settings))
    names = names or _filtered(desk, stream, options)
    order = ReplayOrder(dry_run=options["dry_run"])
    return tell_replays([replay_letter(desk, stream, name, order) for name in names], as_json=as_json)


def drop_dead(settings: Settings, names: Sequence[str], options: Mapping[str, Any], *, as_json: bool) -> int:
    """``kbw dlq drop``; exit code 1 when one was not there."""
    desk, stream = _open(workshop(settings))
    names = names or _filtered(desk, stream, options)
    dropped = {name: options["dry_run"] or drop_letter(desk, stream, name) for name in names}
    if as_json:
        click.echo(json.dumps(dropped, ensure_ascii=False, indent=2))
    for name, done in dropped.items() if not as_json else ():
        told = "would be dropped" if options["dry_run"] else "dropped" if done else "no such dead letter"
        click.echo(f"{name}: {told}")
    return 0 if all(dropped.values()) else 1


def _filtered(desk: Desk, stream: DeadStream, options: Mapping[str, Any]) -> list[str]:
    names = [letter.name for letter in dead_letters(desk, stream, _choice(options))]
    ask_for_yes(len(names), yes=options["yes"] or options["dry_run"])
    return names


def _choice(options: Mapping[str, Any]) -> Choice:
    return Choice(("failed",), options["stage"], options["code"], options["older"], options["limit"])


def _open(shop: Workshop) -> tuple[Desk, DeadStream]:
    return open_desk(shop), shop.dead_stream
