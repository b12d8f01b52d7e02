"""The whole life of a ``material_search`` job, stage by stage, in order; the same engine as ``tasks.query``.

``plan → find → render → publish``. ``find`` is one stage, not three: cards must be gone when it ends, so what was
searched, re-screened and transferred for a node cannot be handed from one artefact to the next.
"""

from __future__ import annotations

from tasks.contract import strict_json
from tasks.contract.material import MaterialFound, MaterialOutcome, MaterialPlan, NodeFound
from tasks.errors import Code, PermanentError
from tasks.pipeline import Pipeline
from tasks.ports import MaterialDesk
from tasks.queues import IO, LLM
from tasks.stages import material_find as finding
from tasks.stages import material_plan as planning
from tasks.stages import material_render as rendering
from tasks.stages import mounting
from tasks.stages import publish as publishing
from tasks.stages.job import MATERIAL_FOUND, MATERIAL_OUTCOME, MATERIAL_PLAN, Job

SKILL = "material_search"
NODES = "material-nodes.jsonl"

material = Pipeline("material", skill=SKILL)


@material.stage(IO, writes=MATERIAL_PLAN)
def plan(job: Job) -> MaterialPlan:
    """The question of each node, or why none is asked."""
    job.ports.sink.check(job.payload)  # before any work is paid for: can the result be delivered at all?
    return planning.plan(job.payload, _desk(job).rules)


@material.stage(LLM, writes=MATERIAL_FOUND, calls_model=True)
def find(job: Job) -> MaterialFound:
    """Search, re-screen on structure, transfer; node by node, cards dropped after use."""
    return finding.find(
        job.material_plan,
        _desk(job),
        ask=job.asker(finding.FIND, shown=size_only),
        knowledge=lambda asked: mounting.gather(SKILL, asked, job.ports.knowledge, seconds_left=job.seconds_left),
        done=_done(job),
        keep=lambda node: job.folder.append(NODES, {"generation": job.generation, "found": node.document()}),
    )


@material.stage(IO, writes=MATERIAL_OUTCOME)
def render(job: Job) -> MaterialOutcome:
    """The text in its one fixed form, and the report of the nodes."""
    recorded = [{**entry, "stage": finding.FIND} for entry in job.degraded[:1]]
    return rendering.render(job.material_plan, job.material_found, _desk(job).rules, recorded)


@material.stage(IO, writes=None)
def publish(job: Job) -> None:
    """Fix the bytes of the one result and deliver them."""
    publishing.publish(job, rendering.material_result)


def size_only(reply: str) -> str:
    """What ``replies/`` keeps here: a reply written beside cards may quote them, so only that there was one."""
    return f"{len(reply)} characters, not kept: the model had material cards before it\n"


def _desk(job: Job) -> MaterialDesk:
    if job.ports.material is None:
        raise PermanentError(
            Code.INTERNAL,
            en="material retrieval is not set up in this process",
            zh="本服务没有配置素材检索，请联系管理员",
        )
    return job.ports.material


def _done(job: Job) -> dict[str, NodeFound]:
    """Nodes that an attempt before this one finished, in the same generation."""
    found = {}
    for line in (job.folder.read(NODES) or b"").splitlines():
        try:
            entry = strict_json.loads(line)
            if entry["generation"] == job.generation:
                node = NodeFound.model_validate(entry["found"])
                found[node.id] = node
        except (ValueError, TypeError, KeyError):
            continue  # the torn line of a killed writer
    return found
