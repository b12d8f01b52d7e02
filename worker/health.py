"""Whether work is being consumed, and whether it could be; must not take part in it.

``live`` is not about a process: a worker that is up but takes nothing is the fault that no process check sees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tasks.ports import OpenJob
from worker.metrics import BACKLOG_CLASSES, is_ready

Probe = tuple[bool, dict[str, Any]]


def consumed(
    open_jobs: Iterable[OpenJob],
    last_claims: Mapping[str, float],
    paused: Sequence[str],
    queues: Mapping[str, str],
    *,
    now: float,
    patience_s: float,
) -> Probe:
    """Not live: jobs of a queue are ready for longer than ``patience_s``, and meanwhile none was claimed or at work.

    Paused queues and jobs behind a cap, a breaker, a pause or their conversation do not count. Times by the server.
    """
    jobs = list(open_jobs)
    facts: dict[str, Any] = {}
    for queue, kind in BACKLOG_CLASSES.items():
        here = [job for job in jobs if queues.get(job.stage) == queue]
        ready = [job.ready_at for job in here if is_ready(job, now)]
        oldest = max((now - at for at in ready), default=0.0)
        at_work = sum(job.state == "running" and job.lease_until > now for job in here)
        idle = now - last_claims.get(queue, 0.0)
        stuck = oldest > patience_s and idle > patience_s and not at_work and f"queue:{queue}" not in paused
        facts[kind] = {"ready": len(ready), "running": at_work, "oldestReadySeconds": round(oldest, 1), "stuck": stuck}
    stuck_kinds = [kind for kind, fact in facts.items() if fact["stuck"]]
    reason = f"nobody takes jobs of class {', '.join(stuck_kinds)}" if stuck_kinds else ""
    return not stuck_kinds, {"live": not stuck_kinds, "reason": reason, "classes": facts}


def of_class(probe: Probe, kind: str) -> Probe:
    """The answer about one class of workers alone: whoever restarts on a no must not restart the wrong ones."""
    _, facts = probe
    classes = facts.get("classes", {})
    if kind not in classes:  # the record could not be reached
        return probe
    stuck = classes[kind]["stuck"]
    reason = f"nobody takes jobs of class {kind}" if stuck else ""
    return not stuck, {"live": not stuck, "reason": reason, "classes": {kind: classes[kind]}}


@dataclass(frozen=True)
class Check:
    """One thing that work needs. ``look`` raises with the reason when it is not there."""

    name: str
    look: Callable[[], object]


def available(checks: Sequence[Check]) -> Probe:
    """Ready when every check passes; the facts say what is missing."""
    found = {check.name: _look(check) for check in checks}
    ready = not any(found.values())
    reason = "; ".join(f"{name}: {fault}" for name, fault in found.items() if fault)
    return ready, {"ready": ready, "reason": reason, "checks": {name: fault or "ok" for name, fault in found.items()}}


def _look(check: Check) -> str:
    try:
        check.look()
    except Exception as error:  # noqa: BLE001 - whatever is wrong, it is not ready, and this is why
        return str(error) or type(error).__name__
    return ""
