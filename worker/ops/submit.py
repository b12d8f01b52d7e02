"""``kbw submit``: hand a payload file to the running system, and wait for its one result."""

from __future__ import annotations

import json
from pathlib import Path

import click

from tasks.accept import OVER, accept, conflict
from tasks.contract.shape import JsonObject
from tasks.errors import Code, PermanentError, StoreUnavailableError
from tasks.ports import Record
from tasks.rules.explain import why_waiting
from tasks.stages.job import RESULT
from worker.app import build_app, waker
from worker.bootstrap import Workshop, workshop
from worker.intake.document import read_document, refuse_double_names
from worker.ops.local import read_file, refused
from worker.settings import Settings

POLL_S = 0.2
GRACE_S = 60.0
SILENCE_S = 30.0


def submit(path: Path, settings: Settings, *, wait: bool, as_json: bool) -> int:
    """Accept the payload; with ``wait`` until its result is there. Exit code 1: refused, or no success."""
    content = read_file(path, "payload")
    shop = workshop(settings)
    document: JsonObject | None = None
    try:
        document = read_document(content)
        refuse_double_names(content)
        accepted = accept(
            document, source=f"cli:{path}", intake=shop.intake(waker(build_app(shop.redis_url, settings.redis.prefix)))
        )
    except PermanentError as error:
        raise refused(error, content, path, document, shop) from error
    if accepted.kind == "conflict":
        raise refused(conflict(accepted.record.task_id), content, path, document, shop, first=accepted.record)
    task_id = accepted.record.task_id
    if not wait:
        _say({"taskId": task_id, "state": accepted.record.state, "known": accepted.kind == "same"}, as_json=as_json)
        return 0
    return _wait_for_result(shop, task_id, as_json=as_json)


def _wait_for_result(shop: Workshop, task_id: str, *, as_json: bool) -> int:
    """Wait until the record is over; a little longer than its deadline at most.

    A system that restarts meanwhile is waited for half a minute, then ``StoreUnavailableError`` says that it stopped.
    """
    views, shown, silent_since = shop.records.views, "", None
    while True:
        try:
            record, now = views.get(task_id), views.now()
        except StoreUnavailableError:
            silent_since = silent_since or shop.clock.monotonic()
            if shop.clock.monotonic() - silent_since > SILENCE_S:
                raise
            shop.clock.sleep(POLL_S)
            continue
        silent_since = None
        if record is None:
            raise PermanentError(
                Code.INTERNAL,
                en=f"{task_id} is no longer known to the running system; its folder is {shop.folders.path_of(task_id)}",
                zh="任务记录丢失",
            )
        if record.state in OVER:
            break
        if not as_json and (stands := _standing(record, now)) != shown:
            click.echo(f"{task_id}: {stands}", err=True)
            shown = stands
        if now > record.deadline + GRACE_S:
            raise PermanentError(
                Code.DEADLINE,
                en=f"{task_id} is still {record.state} at {record.stage}; see `kbw show {task_id}`",
                zh="等待超时",
            )
        shop.clock.sleep(POLL_S)
    return _tell_result(shop, record, as_json=as_json)


def _standing(record: Record, now: float) -> str:
    """Stage and state; of a job that is held up also the reason that `kbw show` tells."""
    waiting = why_waiting(record, now) if record.state == "parked" or record.blocked else None
    return f"{record.stage} ({record.state})" + (f": {waiting.reason}" if waiting else "")


def _tell_result(shop: Workshop, record: Record, *, as_json: bool) -> int:
    if record.pruned:  # what it answered is at its resultFile, if anywhere
        state = record.state if as_json else f"{record.state} long ago, its files are pruned"
        _say({"taskId": record.task_id, "state": state, "known": True, "pruned": True}, as_json=as_json)
        return 0 if record.state == "done" else 1
    folder = shop.folders.open(record.task_id)
    result = json.loads(folder.read(RESULT) or b"{}")
    success = result.get("success") is True
    if as_json:
        click.echo(json.dumps(result, ensure_ascii=False, indent=2))
    else:
        click.echo(result.get("answer") if success else "\n".join(result.get("errors") or [record.error]))
        click.echo(f"\n{record.task_id}: {'success' if success else record.code} · {folder.path}/{RESULT}", err=True)
    return 0 if success else 1


def _say(facts: dict[str, object], *, as_json: bool) -> None:
    click.echo(json.dumps(facts, ensure_ascii=False) if as_json else f"{facts['taskId']}: {facts['state']}")
