"""What must hold after a storm: one result and one commit a job, catalog = tree, nothing left over; kills nothing."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from tests.chaos.load import Load
from tests.chaos.processes import PROC, all_processes, processes_of
from tests.chaos.world import World
from worker.app import KINDS

DRAIN_S = 240.0
"""Longer than ``KBW_VISIBILITY_S`` of the storm: until then the broker keeps what dead workers had in hand."""

_LINK = re.compile(r"^- \[.*?\]\(<?([^)>]+)>?\)", re.MULTILINE)


def problems(world: World, load: Load) -> list[str]:
    """Everything that is wrong, in words; empty when nothing is."""
    found = list(load.changed)
    found += results(world, load)
    found += repository(world, load)
    found += conversations(world, load)
    found += left_over(world)
    return found


def results(world: World, load: Load) -> list[str]:
    """Results = jobs, all of them successes; the same bytes in folder, file and stream."""
    found = []
    files = {path.stem for path in (world.system.shared / "results").glob("*.json")}
    if files != set(load.handed_in):
        found.append(f"results without a job or jobs without a result: {sorted(files ^ set(load.handed_in))}")
    streamed: dict[str, set[str]] = {}
    for _, entry in world.redis().xrange("kbw:results"):  # type: ignore[union-attr]
        streamed.setdefault(entry["taskId"], set()).add(entry["result"])
    for task_id in load.handed_in:
        result = world.system.result(task_id)
        if result is None:
            continue
        text = (world.system.shared / "results" / f"{task_id}.json").read_text("utf-8")
        if not result["success"]:
            found.append(f"{task_id} failed: {result['errorCode']} {result['errors']}")
        if text != (world.system.shared / ".kbw" / "jobs" / task_id / "result.json").read_text("utf-8"):
            found.append(f"{task_id}: the result file is not what the job folder holds")
        if streamed.get(task_id) != {text}:
            found.append(f"{task_id}: the stream of results holds {len(streamed.get(task_id, ()))} texts, not this one")
    return found


def repository(world: World, load: Load) -> list[str]:
    """Each job's trailer once; catalog = tree; the index lists every QA page; receipts tell the truth."""
    git = world.system.git
    trailers = Counter(re.findall(r"^Task-Id: (\S+)$", git.git("team", "kb", "log", "--format=%B"), re.MULTILINE))
    found = [f"{task_id}: {trailers[task_id]} commits" for task_id in load.handed_in if trailers[task_id] != 1] + [
        f"commit of an unknown job {task_id}" for task_id in trailers if task_id not in load.handed_in
    ]
    tree = git.git("team", "kb", "-c", "core.quotePath=false", "ls-tree", "-r", "--name-only", "HEAD").splitlines()
    pages = {path for path in tree if path.endswith(".md") and path != "index.md"}
    entries = Counter(entry["path"] for entry in world.system.catalog())
    found += [f"{path}: {entries[path]} catalog entries" for path in pages if entries[path] != 1]
    found += [f"catalog entry without page: {path}" for path in entries if path not in pages]
    listed = Counter(_LINK.findall(git.git("team", "kb", "show", "HEAD:index.md")))
    found += [
        f"{path}: {listed[path]} times in index.md" for path in pages if path.startswith("qa/") and listed[path] != 1
    ]
    for task_id in load.handed_in:
        result = world.system.result(task_id) or {}
        page = result.get("createdQaPath", "")
        if page not in pages:
            found.append(f"{task_id}: its page {page!r} is not in the tree")
        elif task_id not in git.git("team", "kb", "show", f"{result['commitId']}:{page}"):
            found.append(f"{task_id}: commit {result['commitId']} does not hold its page")
    git.git("team", "kb", "fsck", "--strict", "--no-dangling")
    return found


def conversations(world: World, load: Load) -> list[str]:
    """In one conversation a job begins when the one before it has its result."""
    lanes: dict[str, list[tuple[int, int, str]]] = {}
    for task_id in load.handed_in:
        folder = world.system.shared / ".kbw" / "jobs" / task_id
        began = (folder / "context.json").stat().st_mtime_ns
        lanes.setdefault(task_id.split("-")[1], []).append(
            (began, (folder / "result.json").stat().st_mtime_ns, task_id)
        )
    found = []
    for lane in lanes.values():
        lane.sort()
        for (_, ended, first), (began, _, second) in pairwise(lane):
            if began < ended:
                found.append(f"{second} began before {first} of the same conversation was through")
    return found


def left_over(world: World) -> list[str]:
    """No open job, no message, no lock, no slot, no zombie."""
    queues = [f"kbw:mq:{kind.queue}" for kind in KINDS.values()]

    def remaining() -> list[str]:
        client = world.redis()
        found = [f"{client.llen(queue)} messages in {queue}" for queue in queues if client.llen(queue)]
        found += [f"{client.hlen('kbw:mq:unacked')} unacknowledged"] if client.exists("kbw:mq:unacked") else []
        for state in ("queued", "running", "parked"):
            found += [f"{task_id} is {state}" for task_id in client.zrange(f"kbw:state:{state}", 0, -1)]
        for pattern in ("due", "freed", "stage:*", "lane:*", "wait:*", "slots:*", "lock:kbw.*"):
            for key in client.scan_iter(f"kbw:{pattern}", count=1000):
                found.append(f"{key} is left")
        pending: Any = client.xpending("kbw:jobs", "kbw") if client.exists("kbw:jobs") else {"pending": 0}
        found += [f"{pending['pending']} stream entries unacknowledged"] if pending["pending"] else []
        return found

    found = _until_empty(remaining)
    found += _until_empty(lambda: zombies(world))
    for folder in (world.system.home / "cache", world.system.home / "second-cache"):
        found += [f"stray lock {path}" for path in (folder / "mirrors").rglob("*.git/**/*.lock")]
    return found


def zombies(world: World) -> list[str]:
    """Dead children that nobody took note of."""
    ours = {process.pid: process for process in processes_of(world.system.home)}
    return [
        f"zombie {process.pid} of {ours[process.parent].role}"
        for process in all_processes()
        if process.state == "Z" and process.parent in ours
    ]


def descriptors(world: World) -> dict[int, tuple[str, int]]:
    """Open descriptors of each process of ours."""
    return {p.pid: (p.role, p.descriptors()) for p in processes_of(world.system.home)}


def grown(before: dict[int, tuple[str, int]], after: dict[int, tuple[str, int]]) -> dict[int, tuple[str, int]]:
    """Those of ``before`` that live on and have more descriptors open now."""
    return {pid: now for pid, now in after.items() if pid in before and now[1] > before[pid][1]}


def targets(pid: int) -> str:
    """What the descriptors of a process lead to, counted."""
    counts: Counter[str] = Counter()
    for link in (PROC / str(pid) / "fd").glob("*"):
        try:
            counts[re.sub(r"\[\d+\]", "", str(link.readlink()))[-50:]] += 1
        except OSError:
            continue
    return str(dict(counts.most_common(8)))


def _until_empty(look: Callable[[], list[str]], patience: float = DRAIN_S) -> list[str]:
    limit = time.monotonic() + patience
    while (found := look()) and time.monotonic() < limit:
        time.sleep(0.25)
    return found


# ---------------------------------------------------------------- figures


def figures(world: World, load: Load) -> dict[str, Any]:
    """What the storm cost: attempts, re-runs, what was refused or fenced."""
    starts: Counter[tuple[str, str]] = Counter()
    events: Counter[str] = Counter()
    for task_id in load.handed_in:
        for event in world.system.events(task_id):
            events[str(event.get("event"))] += 1
            if event.get("event") == "start":
                starts[task_id, str(event.get("stage"))] += 1
    counters: dict[str, str] = world.redis().hgetall("kbw:counters")  # type: ignore[assignment]
    shown = ("duplicates", "fenced", "leases_expired", "wakes", "parks", "restored")
    return {
        "jobs": len(load.handed_in),
        "repeated payloads": load.repeats,
        "stages started": sum(starts.values()),
        "stages started again": sum(starts.values()) - len(starts),
        "commit stages started again": sum(number - 1 for (_, stage), number in starts.items() if stage == "commit"),
        "events": dict(sorted(events.items())),
        "suppressed": {
            name: int(number)
            for name, number in sorted(counters.items())
            if name in shown or name.startswith("refused/")
        },
        "model calls": len(world.system.model.requests),
        "commits": int(world.system.git.git("team", "kb", "rev-list", "--count", "HEAD")) - 1,
    }


def as_lines(facts: dict[str, Any]) -> str:
    """For people."""
    return "\n".join(f"  {name}: {json.dumps(value, ensure_ascii=False)}" for name, value in facts.items())
