"""``kbw cancel``, ``pause`` and ``resume``: what operators wish of running work; must not touch artefacts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

import click

from tasks.queues import QUEUES
from worker.bootstrap import workshop
from worker.ops.desk import Desk, open_desk
from worker.ops.failure import OperationFailedError
from worker.settings import Settings

TOLD = {
    "requested": "cancelled; its error result is on the way",
    "too_late": "too late: its commit or the delivery of its result has begun, and will be finished",
    "over": "is over already",
    "unknown": "no such job",
}


@dataclass(frozen=True)
class Outcome:
    """What became of one job."""

    task_id: str
    outcome: str


def cancel(desk: Desk, task_id: str) -> Outcome:
    """Wish one job cancelled; it ends with the result CANCELLED wherever it stands, unless its commit has begun."""
    outcome = desk.records.control.cancel(task_id)
    record = desk.records.views.get(task_id)
    if outcome == "requested" and record:
        desk.note(record, "cancel")
        desk.wake_freed()
    return Outcome(task_id, outcome)


def cancel_jobs(settings: Settings, task_ids: Sequence[str], *, as_json: bool) -> int:
    """Exit code 1 when one of them could not be cancelled."""
    desk = open_desk(workshop(settings))
    outcomes = [cancel(desk, task_id) for task_id in task_ids]
    if as_json:
        click.echo(json.dumps([asdict(outcome) for outcome in outcomes], ensure_ascii=False, indent=2))
    else:
        for told in outcomes:
            click.echo(f"{told.task_id}: {TOLD[told.outcome]}")
    return 0 if all(told.outcome == "requested" for told in outcomes) else 1


def gate_of(queue: str, endpoint: str, known_endpoints: Iterable[str]) -> str:
    """The gate's name. Wrong usage: both or none named, or a queue or an endpoint that nobody uses."""
    if bool(queue) == bool(endpoint):
        raise click.UsageError("name a --queue or an --endpoint")
    queues = sorted(set(QUEUES.values()))
    if queue:
        if queue not in queues:
            raise click.BadParameter(f"{queue!r} is none of {', '.join(queues)}", param_hint="--queue")
        return f"queue:{queue}"
    endpoints = sorted(set(known_endpoints))
    if endpoint.rstrip("/") not in endpoints:
        told = ", ".join(endpoints) or "none was called yet"
        raise OperationFailedError(f"no job calls the endpoint {endpoint!r}; known: {told}")
    return f"endpoint:{endpoint.rstrip('/')}"


def close_gate(settings: Settings, queue: str, endpoint: str, *, as_json: bool) -> int:
    """``kbw pause``."""
    desk = open_desk(workshop(settings))
    gate = gate_of(queue, endpoint, _endpoints(desk))
    desk.records.control.pause(gate)
    return _tell_gates(desk, gate, "paused; running work goes on, `kbw resume` opens it again", as_json=as_json)


def open_gate(settings: Settings, queue: str, endpoint: str, *, as_json: bool) -> int:
    """``kbw resume``."""
    desk = open_desk(workshop(settings))
    gate = gate_of(queue, endpoint, [*_endpoints(desk), *(name.removeprefix("endpoint:") for name in _paused(desk))])
    desk.records.control.resume(gate)
    desk.wake_freed()
    return _tell_gates(desk, gate, "open", as_json=as_json)


def _endpoints(desk: Desk) -> list[str]:
    configured = desk.ports.model.endpoint
    return [view.endpoint for view in desk.records.views.endpoints()] + ([configured] if configured else [])


def _paused(desk: Desk) -> list[str]:
    return [name for name in desk.records.control.paused() if name.startswith("endpoint:")]


def _tell_gates(desk: Desk, gate: str, told: str, *, as_json: bool) -> int:
    paused = desk.records.control.paused()
    click.echo(json.dumps({"gate": gate, "paused": paused}, ensure_ascii=False) if as_json else f"{gate}: {told}")
    if not as_json and paused:
        click.echo(f"paused now: {', '.join(paused)}")
    return 0
