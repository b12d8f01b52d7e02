"""Read this first: the whole life of a ``kb_query`` job, stage by stage, in order.

Each function names its queue, the artefact it writes and the ports its stage needs; the work is in ``tasks/stages``.
Who runs them: ``tasks.base`` in the fleet (one Celery task a stage, ``kbw.query.<stage>``, carrying only the taskId),
``tasks.pipeline.run_inline`` in one process. After each stage the job's record moves on and the next stage is woken;
a stage whose artefact exists is passed over; whatever fails goes straight to ``publish``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tasks.contract.answer import Answer
from tasks.contract.context import Context
from tasks.contract.evidence import Evidence
from tasks.contract.outcome import Outcome, Receipt
from tasks.contract.selection import PageSelection
from tasks.pipeline import Pipeline, timestamp
from tasks.ports import Snapshot
from tasks.queues import COMMIT, IO, LLM
from tasks.stages import answer as answering
from tasks.stages import apply as applying
from tasks.stages import commit as committing
from tasks.stages import fetch as fetching
from tasks.stages import mounting
from tasks.stages import prepare as preparing
from tasks.stages import publish as publishing
from tasks.stages import select as selecting
from tasks.stages.job import ANSWER, CONTEXT, EVIDENCE, OUTCOME, RECEIPT, SELECTION, Job
from tasks.stages.prepare import SKILL

query = Pipeline("query", skill=SKILL)


def visible_in(snapshot: Snapshot) -> Callable[[str], bool]:
    """Whether a path is a visible page of this snapshot."""
    return lambda path: snapshot.lookup(path) is not None


def writes_a_page(job: Job) -> bool:
    """Jobs without a QA page skip ``commit``."""
    return job.outcome.qa_page is not None


@query.stage(IO, writes=CONTEXT)
def prepare(job: Job) -> Context:
    """Pin a commit; gather catalog, ranked pages, cards and attachment texts for the model."""
    job.ports.sink.check(job.payload)  # before any work is paid for: can the result be delivered at all?
    preparing.check_skill(job.payload)  # nor a look at a knowledge base that it may not even name
    snapshot = job.ports.kb.latest(job.repo, fresh=job.ports.fresh_kb)
    return preparing.prepare(
        job.payload,
        repo=job.repo,
        snapshot=snapshot,
        attachments=job.ports.attachments,
        limits=job.ports.limits,
        knowledge=mounting.gather(SKILL, job.payload.question, job.ports.knowledge, seconds_left=job.seconds_left),
    )


@query.stage(LLM, writes=SELECTION, calls_model=True)
def select(job: Job) -> PageSelection:
    """The model chooses the pages it wants to read."""
    snapshot = job.ports.kb.at(job.repo, job.context.kb.commit)
    return selecting.select(job.payload, job.context, snapshot=snapshot, ask=job.asker("select"))


@query.stage(IO, writes=EVIDENCE)
def fetch(job: Job) -> Evidence:
    """Read exactly these pages at the pinned commit."""
    return fetching.fetch(job.payload, job.context, job.selection, kb=job.ports.kb, repo=job.repo)


@query.stage(LLM, writes=ANSWER, calls_model=True)
def answer(job: Job) -> Answer:
    """The model answers from the evidence and judges whether the answer is worth keeping."""
    return answering.answer(job.payload, job.context, job.evidence, ask=job.asker("answer"))


@query.stage(IO, writes=OUTCOME)
def apply(job: Job) -> Outcome:
    """Check the answer, make it safe, rebuild its sources, decide on the QA page."""
    return applying.apply(
        job.payload,
        job.context,
        job.evidence,
        job.answer,
        now=timestamp(job.ports.clock.now()),
        is_page=visible_in(job.ports.kb.at(job.repo, job.context.kb.commit)),
        degraded=job.degraded,
    )


@query.batch(COMMIT, writes=RECEIPT, needed=writes_a_page)
def commit(jobs: Sequence[Job]) -> list[Receipt]:
    """One commit and one push for all QA pages that wait for one repository."""
    return committing.commit([job.outcome for job in jobs], repo=jobs[0].repo, writer=jobs[0].ports.writer)


@query.stage(IO, writes=None)
def publish(job: Job) -> None:
    """Fix the bytes of the one result and deliver them."""
    publishing.publish(job)
