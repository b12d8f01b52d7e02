"""One span for each attempt at a stage, begun at its claim and ended where its end is noted; must not decide anything.

Names of facts follow OpenTelemetry where it has one (``gen_ai.*``, ``error.type``); the others begin with ``kbw.``.
"""

from __future__ import annotations

from tasks.contract.shape import JsonObject
from tasks.contract.trace import is_fresh
from tasks.ports import Facts
from tasks.stages.job import Job

ENDS = frozenset({"checkpoint", "park", "fail", "finish", "fenced"})
"""What ends an attempt, as the journal calls it."""


def begin_span(job: Job, stage: str) -> None:
    """An attempt begins."""
    job.heard.clear()
    job.span = job.ports.spans.begin(f"kbw.{stage}", job.traceparent)


def end_span(job: Job, line: JsonObject) -> None:
    """The attempt ended as this line of the journal says; with the last one a trace that the job began is whole."""
    span, job.span = job.span, None
    if span is None:
        return
    code = "FENCED" if line["event"] == "fenced" else str(line.get("code") or "")
    facts = _facts(job, line, code)
    span.end(facts, fault=code)
    if line["event"] == "finish" and job.accepted and not job.generation and is_fresh(job.traceparent):
        whole = {"kbw.task_id": job.task_id, **({"error.type": code} if code else {})}
        job.ports.spans.whole("kbw.job", job.traceparent, job.accepted, whole, fault=code)


def _facts(job: Job, line: JsonObject, code: str) -> Facts:
    facts: dict[str, str | int] = {
        "kbw.task_id": job.task_id,
        "kbw.stage": str(line["stage"]),
        "kbw.outcome": str(line["event"]),
        "kbw.worker": str(line["worker"]),
    }
    facts |= {
        f"kbw.{name}": value for name in ("attempt", "generation", "epoch") if isinstance(value := line[name], int)
    }
    if code:
        facts["error.type"] = code
    if job.heard:
        facts |= {
            "gen_ai.provider.name": job.ports.model.name,
            "gen_ai.response.model": job.heard[-1].model,
            "gen_ai.usage.input_tokens": sum(reply.prompt_tokens for reply in job.heard),
            "gen_ai.usage.output_tokens": sum(reply.completion_tokens for reply in job.heard),
            "kbw.model_calls": len(job.heard),
        }
    return facts
