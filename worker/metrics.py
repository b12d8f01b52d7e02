"""The fleet's figures in Prometheus' text format, from the records; must not read a job's text, nor name a job.

Written by hand: the values come as whole counters and histograms out of Redis, so prometheus-client would add a
dependency and a registry that nothing is registered in. Any process may answer; all tell the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from tasks.ports import EndpointView, OpenJob, State

Labels = Mapping[str, str]
BACKLOG_CLASSES = {"kbw.io": "io", "kbw.llm": "llm", "kbw.commit": "commit"}


@dataclass(frozen=True)
class Snapshot:
    """What is counted at one moment. ``now`` and all times by the record's server."""

    now: float
    counts: Mapping[str, int]
    open_jobs: list[OpenJob]
    figures: Mapping[str, int]
    endpoints: list[EndpointView]
    paused: list[str]
    dead_jobs: int
    dead_entries: int
    queues: Mapping[str, str]
    skills: frozenset[str]
    version: str


@dataclass
class Metric:
    """One family: its samples as ``(suffix, labels, value)``."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    meaning: str
    samples: list[tuple[str, Labels, float]] = field(default_factory=list)

    def add(self, value: float, **labels: str) -> None:
        """One sample."""
        self.samples.append(("", labels, value))


def render(metrics: Iterable[Metric]) -> str:
    """The text format 0.0.4."""
    lines: list[str] = []
    for metric in metrics:
        lines += [f"# HELP {metric.name} {metric.meaning}", f"# TYPE {metric.name} {metric.kind}"]
        for suffix, labels, value in metric.samples:
            told = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
            lines.append(
                f"{metric.name}{suffix}{{{told}}} {value:.15g}" if told else f"{metric.name}{suffix} {value:.15g}"
            )
    return "\n".join(lines) + "\n"


def as_document(metrics: Iterable[Metric]) -> dict[str, object]:
    """The same for programs that read JSON."""
    return {
        metric.name: [
            {"labels": dict(labels), "value": value, **({"sample": suffix} if suffix else {})}
            for suffix, labels, value in metric.samples
        ]
        for metric in metrics
    }


def backlog(open_jobs: Iterable[OpenJob], queues: Mapping[str, str], now: float) -> dict[str, int]:
    """Jobs that are ready or running, by class: what more workers could shorten. Blocked and waiting ones are not."""
    found = dict.fromkeys(BACKLOG_CLASSES.values(), 0)
    for job in open_jobs:
        kind = BACKLOG_CLASSES.get(queues.get(job.stage, ""))
        if kind and (job.state == "running" or is_ready(job, now)):
            found[kind] += 1
    return found


def is_ready(job: OpenJob, now: float) -> bool:
    """Whether a worker could take it now: not at work, not blocked by a gate or its conversation, no wait left."""
    return job.state != "running" and not job.blocked and job.ready_at <= now


def metrics_of(seen: Snapshot) -> list[Metric]:
    """All families, also those that are still zero."""
    return [
        *_jobs(seen),
        *_counters(seen.figures),
        *_model(seen),
        *_knowledge(seen.figures),
        *_repository(seen.figures),
        *_histograms(seen),
    ]


def _jobs(seen: Snapshot) -> Iterator[Metric]:
    build = Metric("kbw_build_info", "gauge", "Always 1; the version that answers.")
    build.add(1, version=seen.version)
    yield build
    states = Metric("kbw_jobs", "gauge", "Jobs by state; those that are over until they are pruned.")
    for state in get_args(State):
        states.add(seen.counts.get(state, 0), state=state)
    yield states
    stages = Metric("kbw_open_jobs", "gauge", "Open jobs by stage and state.")
    found = Counter((job.stage, job.state) for job in seen.open_jobs)
    for stage in seen.queues:
        for state in ("queued", "running", "parked"):
            stages.add(found[stage, state], stage=stage, state=state)  # type: ignore[index]  # names of states
    yield stages
    blocked = Metric("kbw_blocked_jobs", "gauge", "Queued jobs that something outside them holds back.")
    reasons = Counter(job.blocked for job in seen.open_jobs if job.state == "queued" and job.blocked)
    for reason in ("order", "cap", "breaker", "paused"):
        blocked.add(reasons[reason], reason=reason)
    yield blocked
    waiting = Metric("kbw_backlog", "gauge", "Jobs ready or running for each class of workers: scale on this one.")
    for kind, number in backlog(seen.open_jobs, seen.queues, seen.now).items():
        waiting.add(number, **{"class": kind})
    yield waiting
    oldest = Metric("kbw_oldest_open_job_age_seconds", "gauge", "Age of the oldest open job, 0 without one.")
    oldest.add(max((seen.now - job.created for job in seen.open_jobs), default=0.0))
    yield oldest
    dead = Metric("kbw_dead_letters", "gauge", "Failed jobs nobody replayed or dropped, and refused stream entries.")
    dead.add(seen.dead_jobs, kind="job")
    dead.add(seen.dead_entries, kind="entry")
    yield dead
    paused = Metric("kbw_paused", "gauge", "Queues and endpoints that an operator closed.")
    for gate in seen.paused:
        paused.add(1, gate=gate)
    yield paused


_COUNTERS = (
    ("accepted", "kbw_jobs_accepted_total", "Jobs recorded."),
    ("duplicates", "kbw_duplicate_submissions_total", "Repeats of a known job: recognised, not run again."),
    ("conflicts", "kbw_conflicts_total", "Payloads refused because their id was known with other content."),
    ("claims", "kbw_attempts_total", "Stages claimed, each one attempt."),
    ("wakes", "kbw_wakeups_total", "Wake-up calls the record asked for again."),
    ("leases_expired", "kbw_leases_lost_total", "Leases that ended unrenewed: a worker died or hung."),
    ("fenced", "kbw_suppressed_effects_total", "Late writes of workers that had lost their lease: refused."),
    ("parks", "kbw_retries_total", "Attempts that ended in a wait before the next."),
    ("replays", "kbw_replays_total", "Replays by operators."),
    ("restored", "kbw_restored_total", "Jobs put back from their folder."),
    ("pruned", "kbw_pruned_total", "Jobs forgotten after their retention time."),
    ("breaker_opened", "kbw_breaker_opened_total", "Times the breaker of a model endpoint opened."),
    ("endpoint_faults", "kbw_endpoint_faults_total", "Faults of model endpoints that breakers count."),
)
_LABELLED = (
    ("finished/", "state", "kbw_jobs_finished_total", "Jobs that ended, by state."),
    ("given_up/", "code", "kbw_jobs_given_up_total", "Jobs ended by deadline, cancellation or attempts."),
    ("refused/", "reason", "kbw_claims_refused_total", "Claims that were not granted, by reason."),
)


def _counters(figures: Mapping[str, int]) -> Iterator[Metric]:
    for key, name, meaning in _COUNTERS:
        metric = Metric(name, "counter", meaning)
        metric.add(figures.get(key, 0))
        yield metric
    for prefix, label, name, meaning in _LABELLED:
        metric = Metric(name, "counter", meaning)
        for key in sorted(figures):
            if key.startswith(prefix):
                metric.add(figures[key], **{label: key.removeprefix(prefix)})
        yield metric


def _model(seen: Snapshot) -> Iterator[Metric]:
    in_flight = Metric("kbw_model_in_flight", "gauge", "Model calls in flight, over all workers.")
    cap = Metric("kbw_model_cap", "gauge", "How many may be in flight.")
    waiting = Metric("kbw_model_waiting_jobs", "gauge", "Jobs that wait for this endpoint.")
    breaker = Metric("kbw_model_breaker_open", "gauge", "1 while the breaker keeps calls away.")
    for view in seen.endpoints:
        in_flight.add(view.in_flight, endpoint=view.endpoint)
        cap.add(view.cap, endpoint=view.endpoint)
        waiting.add(view.waiting, endpoint=view.endpoint)
        breaker.add(view.open_until > seen.now, endpoint=view.endpoint)
    yield from (in_flight, cap, waiting, breaker)
    for prefix, label, name, meaning in (
        ("model_calls/", "outcome", "kbw_model_calls_total", "Model calls: ok, or the code of the fault."),
        ("tokens/", "kind", "kbw_model_tokens_total", "Tokens as the endpoint counted them."),
    ):
        metric = Metric(name, "counter", meaning)
        for key in sorted(figures := seen.figures):
            if key.startswith(prefix):
                what, _, endpoint = key.removeprefix(prefix).partition("/")
                metric.add(figures[key], **{label: what, "endpoint": endpoint})
        yield metric


_KNOWLEDGE: tuple[tuple[str, tuple[str, ...], str, str, int], ...] = (
    (
        "knowledge/",
        ("status", "source"),
        "kbw_knowledge_searches_total",
        "Searches in knowledge sources, by status.",
        1,
    ),
    (
        "knowledge_ms/",
        ("status", "source"),
        "kbw_knowledge_search_seconds_total",
        "Seconds these searches took.",
        1_000,
    ),
    (
        "mounts/",
        ("outcome", "node", "source"),
        "kbw_knowledge_mounts_total",
        "Sources mounted at a node of a job, by what came of it: hit, cut, zero, none.",
        1,
    ),
    (
        "degraded/",
        ("status", "node", "source"),
        "kbw_knowledge_degraded_total",
        "Mounted sources that gave no answer themselves, and why.",
        1,
    ),
    (
        "material/",
        ("status", "source"),
        "kbw_material_searches_total",
        "Searches for material, by row of the degrade matrix.",
        1,
    ),
)
"""Prefix of the figures, labels in the order of their parts, name, meaning, figures a unit."""


def _knowledge(figures: Mapping[str, int]) -> Iterator[Metric]:
    """Always there, so that an alert on a share of searches has something to divide by."""
    for prefix, labels, name, meaning, unit in _KNOWLEDGE:
        metric = Metric(name, "counter", meaning)
        for key in sorted(figures):
            if key.startswith(prefix):
                values = key.removeprefix(prefix).split("/", len(labels) - 1)
                metric.add(figures[key] / unit, **dict(zip(labels, values, strict=True)))
        yield metric


def _repository(figures: Mapping[str, int]) -> Iterator[Metric]:
    for key, name, meaning in (
        ("pages", "kbw_pages_committed_total", "QA pages written; by kbw_commits_total: pages a push."),
        ("commits", "kbw_commits_total", "Commits pushed to knowledge bases."),
        ("pages_refused", "kbw_pages_refused_total", "QA pages that the repository refused for good."),
    ):
        metric = Metric(name, "counter", meaning)
        metric.add(figures.get(key, 0))
        yield metric


def _histograms(seen: Snapshot) -> Iterator[Metric]:
    for prefix, label, name, meaning in (
        ("stage_ms", "stage", "kbw_stage_duration_seconds", "From claim to checkpoint."),
        ("wait_ms", "stage", "kbw_queue_wait_seconds", "From ready to claimed."),
        ("job_ms", "skill", "kbw_job_duration_seconds", "From accept to the delivered result."),
    ):
        metric = Metric(name, "histogram", meaning)
        for value, parts in sorted(_series(seen, prefix).items()):
            _add_histogram(metric, {label: value}, parts)
        yield metric


def _series(seen: Snapshot, prefix: str) -> dict[str, Counter[str]]:
    """Bucket, sum and count by label; skills that no pipeline serves are one, or payloads could add series at will."""
    found: dict[str, Counter[str]] = {}
    for key, number in seen.figures.items():
        kind, _, rest = key.partition("/")
        label, slash, part = rest.rpartition("/le/")
        if not slash:
            label, _, part = rest.rpartition("/")
        if kind == prefix and label:
            known = prefix != "job_ms" or label in seen.skills
            found.setdefault(label if known else "other", Counter())[part] += number
    return found


def _add_histogram(metric: Metric, labels: Labels, parts: Mapping[str, int]) -> None:
    limits = sorted(int(part) for part in parts if part.isdecimal())
    below = 0
    for limit in limits:
        below += parts[str(limit)]
        metric.samples.append(("_bucket", {**labels, "le": f"{limit / 1000:g}"}, below))
    metric.samples.append(("_bucket", {**labels, "le": "+Inf"}, below + parts.get("inf", 0)))
    metric.samples.append(("_sum", labels, parts.get("sum", 0) / 1000))
    metric.samples.append(("_count", labels, parts.get("count", 0)))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
