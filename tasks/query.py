"""Read this first: the whole life of a ``kb_query`` job, stage by stage, in order.

Each function names its queue, the artefact it writes and the ports its stage needs; the work is in ``tasks/stages``.
Who runs it: ``tasks.base`` in the fleet, ``tasks.pipeline.run_inline`` in one process. After each stage the job's
record moves on and the next stage is woken; a stage whose artefact exists is passed over.
"""

from __future__ import annotations

from collections.abc import Sequence

from tasks.contract import strict_json
from tasks.contract.context import Context
from tasks.contract.evidence import Evidence
from tasks.contract.answer import Answer
from tasks.contract.outcome import Outcome, Receipt
from tasks.contract.selection import PageSelection
from tasks.pipeline import Pipeline
from tasks.stages import answer as answering
from tasks.stages import apply as applying
from tasks.stages import commit as committing
from tasks.stages import fetch as fetching
from tasks.stages import prepare as preparing
from tasks.stages import publish as publishing
from tasks.stages import select as selecting
from tasks.stages.job import ANSWER, CONTEXT, EVIDENCE, OUTCOME, RECEIPT, RESULT, SELECTION, Job

IO, LLM, COMMIT = "kbw.io", "kbw.llm", "kbw.commit"

query = Pipeline("query", skill="kb_query")


def writes_a_page(job: Job) -> bool:
    """Jobs without a QA page skip commit."""
    return job.outcome.qa_page is not None
