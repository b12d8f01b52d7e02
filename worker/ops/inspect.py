"""``kbw list`` and ``kbw show``: where a job stands, how it got there and why; changes nothing."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, replace
from typing import Any, get_args

import click

from tasks.contract import strict_json
from tasks.contract.trace import trace_of
from tasks.errors import StoreUnavailableError
from tasks.ports import JobFolder, Record, State
from tasks.rules.explain import explain, why_waiting
from tasks.stages.ask import CALLS
from tasks.stages.job import CONTEXT, EVENTS, EVIDENCE, OUTCOME, PAYLOAD, RECEIPT, RESULT, SELECTION
from worker.bootstrap import Workshop, workshop
from worker.ops.choosing import Choice, chosen
from worker.settings import Settings, SettingsError

OPEN_FIRST = ("running", "parked", "queued", "failed", "cancelled", "done")


def list_jobs(settings: Settings, choice: Choice, *, as_json: bool) -> None:
    """The chosen jobs, newest first, state by state: open ones lead."""
    shop = workshop(settings)
    views = shop.records.views
    now = views.now()
    choice = replace(choice, states=tuple(state for state in OPEN_FIRST if state in choice.states))
    records = chosen(views, replace(choice, limit=choice.limit + 1), now)
    more, records = len(records) > choice.limit, records[: choice.limit]
    if more:  # on standard error: the JSON stays JSON, and a list that is cut must not pass for the whole
        click.echo(f"kbw: only the first {choice.limit} jobs; --limit shows more", err=True)
    if as_json:
        click.echo(json.dumps([_facts(record, now) for record in records], ensure_ascii=False, indent=2))
        return
    counts = views.counts()
    click.echo(" · ".join(f"{name} {counts.get(name, 0)}" for name in get_args(State)))
    for record in records:
        waiting = why_waiting(record, now)
        told = waiting.reason if waiting else (f"{record.code} {record.error}".strip() or record.commit_id[:12])
        age = _duration(now - record.created)
        click.echo(f"{record.task_id}  {record.state:<9} {record.stage:<8} {age:>7} ago  {told}"[:200])


def show_job(settings: Settings, task_id: str, *, as_json: bool) -> int:
    """One job, from payload to result. A job that Redis does not know is shown from its folder."""
    shop = workshop(settings)
    folder = _folder(shop, task_id)
    record = _record(shop, task_id)
    if record is None and folder is None:
        raise SettingsError(f"no job {task_id!r}: neither in Redis nor in {shop.shared_dir}/.kbw/jobs")
    now = shop.records.views.now() if record else 0.0
    document = {
        "taskId": task_id,
        "record": _facts(record, now) if record else None,
        "folder": folder.path if folder else None,
        "artefacts": _artefacts(folder) if folder else {},
        "events": _journal(folder, EVENTS) if folder else [],
        "calls": _journal(folder, CALLS) if folder else [],
    }
    if as_json:
        click.echo(json.dumps(document, ensure_ascii=False, indent=2))
    else:
        click.echo("\n".join(_story(document, record, now)))
    return 0


def _story(document: dict[str, Any], record: Record | None, now: float) -> list[str]:
    found = document["artefacts"]
    payload, result = found.get(PAYLOAD) or {}, found.get(RESULT) or {}
    lines = [f"{document['taskId']}  {payload.get('question', '')!s:.100}".rstrip()]
    if document["folder"] is None and record and record.pruned:
        return [*lines, _standing(record)]  # nothing else is left
    lines.append(f"  folder    {document['folder']}")
    if record:
        lines.append(_standing(record))
        if waiting := why_waiting(record, now):
            until = f", until {_time(waiting.until)}" if waiting.until > now else ""
            lines.append(f"  waiting   {waiting.reason}{until}")
    lines += ["", "  stages", *_stages(document["events"])]
    lines += _pages(found)
    if calls := document["calls"]:
        lines += ["", "  model calls"]
        lines += [_call(call) for call in calls]
    return lines + _ending(document["taskId"], found, record, result)


def _standing(record: Record) -> str:
    if record.pruned:
        commit = f", commit {record.commit_id}" if record.commit_id else ""
        ended = _time(record.finished)
        return f"  state     {record.state} at {ended}{commit}; pruned since, a repeat is still known"
    trace = f"\n  trace     {trace_of(record.traceparent)}" if record.traceparent else ""
    return f"  state     {record.state} at {record.stage}, attempt {record.attempt}, from {record.source}{trace}"


def _call(call: dict[str, Any]) -> str:
    ended = call.get("finishReason") or call.get("status")
    violations = "; ".join(map(str, call.get("violations") or []))
    return (
        f"    {call.get('stage')}-{call.get('n')}  {call.get('driver')} {call.get('model')}  {call.get('ms')} ms  "
        f"{ended}  {call.get('readLevel') or ''} {violations}"
    ).rstrip()


def _stages(events: list[dict[str, Any]]) -> list[str]:
    return [_line(event) for event in events if event.get("event") != "start"] or ["    none yet"]


def _line(event: dict[str, Any]) -> str:
    """When, where, what, how long, why, and who if it was a person. A park tells what it waits, not what it took."""
    duration = event["ms"] if isinstance(event.get("ms"), int) else None
    told = " ".join(str(event[key]) for key in ("code", "reason") if event.get(key))
    if event.get("event") == "park" and duration is not None:
        told, duration = f"waits {duration / 1000:.0f} s: {told}", None
    if str(event.get("actor", "")).startswith("operator:"):
        told = f"{told} by {event['actor']}".lstrip()
    took = "" if duration is None else f"{duration} ms"
    return (
        f"    {event.get('at', '')}  {event.get('stage', ''):<8} {event.get('event', ''):<10} "
        f"attempt {event.get('attempt', '')}  {took:>9}  {told}"
    ).rstrip()


def _pages(found: dict[str, Any]) -> list[str]:
    selection, evidence = found.get(SELECTION), found.get(EVIDENCE)
    if not selection:
        return []
    lines = ["", f"  pages chosen  {selection.get('rationale', '')}"]
    cited = {source.get("path") for source in (found.get(OUTCOME) or {}).get("sources", [])}
    for page in (evidence or {}).get("evidencePages", []):
        mark = "cited" if page.get("path") in cited else "read"
        lines.append(f"    {mark:<6} {page.get('path')}  {page.get('selectionReason', '')}")
    missing = (evidence or {}).get("missingPages", [])
    return lines + [f"    {page.get('reason'):<6} {page.get('path')}" for page in missing]


def _ending(task_id: str, found: dict[str, Any], record: Record | None, result: dict[str, Any]) -> list[str]:
    lines = [""]
    receipt = found.get(RECEIPT) or {}
    if receipt.get("commitId"):
        lines.append(f"  commit    {receipt['commitId']}  {receipt.get('path')}")
    if commit := ((found.get(CONTEXT) or {}).get("kb") or {}).get("commit"):
        lines.append(f"  read at   {commit}")
    code = result.get("errorCode") or (record.code if record and record.state in ("failed", "parked") else "")
    if code:
        told = explain(code, task_id)
        lines += [
            f"  error     {code}: {record.error if record and record.error else told.en}",
            f"  to do     {told.cure_en}",
        ]
    for error in result.get("errors", []):
        lines.append(f"  noted     {error}")
    if result:
        lines.append(f"  result    {'success' if result.get('success') else 'failed'}")
    return lines


def _artefacts(folder: JobFolder) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in (PAYLOAD, CONTEXT, SELECTION, EVIDENCE, "answer.json", OUTCOME, RECEIPT, RESULT):
        try:
            found[name] = strict_json.loads(folder.read(name) or b"null")
        except ValueError:
            continue  # damaged: the others still tell
    return {name: value for name, value in found.items() if isinstance(value, dict)}


def _journal(folder: JobFolder, name: str) -> list[dict[str, Any]]:
    lines = []
    for line in (folder.read(name) or b"").splitlines():
        try:
            found = strict_json.loads(line)
        except ValueError:
            continue  # a torn line of a killed writer
        if isinstance(found, dict):
            lines.append(found)
    return lines


def _folder(shop: Workshop, task_id: str) -> JobFolder | None:
    return shop.folders.open(task_id) if task_id in shop.folders.task_ids() else None


def _record(shop: Workshop, task_id: str) -> Record | None:
    try:
        return shop.records.views.get(task_id)
    except (SettingsError, StoreUnavailableError):
        return None  # no running system: the folder still tells


def _facts(record: Record, now: float) -> dict[str, Any]:
    waiting = why_waiting(record, now)
    return {**asdict(record), "waiting": asdict(waiting) if waiting else None}


def _time(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))


def _duration(seconds: float) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f}{unit}"
    return f"{max(0, seconds):.0f}s"
