"""What a job needs from the world, as Protocols named after the need; must import no adapter and no vendor.

Each port has a real adapter in ``worker/adapters`` and a fake in ``tests/fakes.py``; one contract suite runs over both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from tasks.contract.context import AttachmentView, Limits
from tasks.contract.outcome import QaPage, Receipt
from tasks.contract.pages import PageFacts
from tasks.contract.payload import AttachmentRef, Payload
from tasks.contract.shape import JsonObject, Note
from tasks.knowledge.found import Found
from tasks.knowledge.material import MaterialRules
from tasks.knowledge.spec import Injection

# ---------------------------------------------------------------- knowledge base


@dataclass(frozen=True)
class RepoRef:
    """One repository: ``owner/name``. The base URL and the token belong to the adapter, never to a job."""

    owner: str
    name: str

    def __str__(self) -> str:
        return f"{self.owner}/{self.name}"


@dataclass(frozen=True)
class RankedPage:
    """A page found for a question. ``score`` is only comparable within one answer; ``passage`` is its best text."""

    facts: PageFacts
    score: float
    passage: str


class Snapshot(Protocol):
    """The repository at one commit. Everything read through one snapshot belongs to exactly that commit.

    Visibility, metadata precedence and warnings follow CONTRACT §4.1 "Visible page".
    """

    @property
    def commit(self) -> str:
        """Full hex id (40 or 64 digits)."""

    @property
    def page_count(self) -> int:
        """Number of visible pages."""

    def lookup(self, path: str) -> PageFacts | None:
        """Facts of a visible page by its exact NFC path, else ``None``."""

    def listing(self, limit: int, first: Sequence[str]) -> list[PageFacts]:
        """At most ``limit`` pages for ``catalogPages``: ``first`` in order, then spread over all types."""

    def rank(self, question: str, limit: int, history: Sequence[str] = (), passages: int = 10) -> list[RankedPage]:
        """The best pages for the question over all visible pages, best first.

        ``history``: earlier questions and titles of cited pages, the newest last; they weigh in when the question leans
        on them. The first ``passages`` hits with text have one, of at most 1,200 characters; the others ``""``.
        """

    def read(self, path: str) -> str | None:
        """The page file's text (frontmatter included) at this commit, decoded leniently; ``None``: not there."""

    def index_text(self, limit: int) -> str:
        """The first ``limit`` characters of ``index.md``, ``""`` without one."""

    def notes(self, paths: Iterable[str]) -> list[Note]:
        """Warnings of the catalog itself and of the given pages (broken frontmatter, …)."""


class KbReader(Protocol):
    """Reads a repository. Raises ``KB_UNREACHABLE`` (transient), ``KB_AUTH``, ``KB_NOT_FOUND`` (permanent)."""

    def latest(self, repo: RepoRef, *, fresh: bool) -> Snapshot:
        """The remote's head: looked up now when ``fresh``, else at most 2 s ago."""

    def at(self, repo: RepoRef, commit: str) -> Snapshot:
        """The snapshot a job is pinned to. Raises ``COMMIT_GONE`` (permanent) when it cannot be had any more."""


@dataclass(frozen=True)
class Change:
    """One job's wish to have its QA page in the repository."""

    task_id: str
    page: QaPage


class KbWriter(Protocol):
    """Writes QA pages: the only way into the repository."""

    def commit(self, repo: RepoRef, changes: Sequence[Change]) -> list[Receipt]:
        """One commit and one push for all ``changes``; receipts in the same order.

        A change whose ``Task-Id`` is already in the history gets that commit's receipt and writes nothing. What is
        refused for good (protected branch, hook, catalog that is no JSON) comes back as a receipt with a Chinese
        sentence in ``errors`` and an empty ``commit_id``. Raises only ``TransientError`` (the batch may be tried again
        as it is), ``KB_AUTH`` and ``KB_NOT_FOUND``.
        """


# ---------------------------------------------------------------- attachments, model, results


class AttachmentReader(Protocol):
    """Turns attached files into text previews. Never raises for a file: a fault is a view with ``error``."""

    def read(
        self, attachments: Sequence[AttachmentRef], shared_dir: str | None, limits: Limits
    ) -> list[AttachmentView]:
        """One view an attachment, in order, within the character budgets. ``shared_dir`` is the payload's own."""


@dataclass(frozen=True)
class ModelCall:
    """One question to the model. ``timeout`` in seconds; ``schema`` is a JSON Schema named ``schema_name``.

    ``question`` is the job's own, for drivers that look replies up; servers are sent ``system`` and ``user`` only.
    """

    stage: str
    system: str
    user: str
    schema_name: str
    schema: JsonObject
    session: str
    timeout: float
    question: str = ""
    traceparent: str = ""
    """The job's trace (W3C), handed on as a header where the driver speaks HTTP."""


@dataclass(frozen=True)
class RawReply:
    """What came back, untouched. ``finish_reason`` as the server said it, ``""`` when it said nothing."""

    text: str
    finish_reason: str
    model: str
    status: int = 200
    prompt_tokens: int = 0
    completion_tokens: int = 0


class ModelDriver(Protocol):
    """One model endpoint. Raises ``NO_MODEL``, ``MODEL_AUTH``, ``MODEL_REFUSED`` (permanent), ``MODEL_UNREACHABLE``."""

    @property
    def name(self) -> str:
        """``openclaw | openai | recorded``: for ``calls.jsonl`` and, when recorded, ``degraded[]``."""

    @property
    def endpoint(self) -> str:
        """What the fleet-wide cap and the breaker count by: the base URL without any secret, ``""`` when none."""

    def complete(self, call: ModelCall) -> RawReply:
        """One reply to one call; never retried here."""


class KnowledgeSource(Protocol):
    """One source of external knowledge (CONTRACT §6). Never raises: every fault is a status."""

    def search(self, query: str, *, timeout_s: float | None = None) -> Found:
        """Hits for the query, best first. ``timeout_s`` shortens the source's own time; the shorter one counts."""


@dataclass(frozen=True)
class MountedSource:
    """A source at a node: its id, and where and how its hits stand in the prompt."""

    id: str
    injection: Injection
    source: KnowledgeSource


@dataclass(frozen=True)
class KnowledgeNode:
    """What one ``AI_TASK`` node mounts, in ``knowledge_ref`` order; ``template``: the operator's words around it."""

    sources: tuple[MountedSource, ...] = ()
    template: str = ""


@dataclass(frozen=True)
class KnowledgeMounts:
    """All mounts by pipeline (the job's skill) and node. ``count`` counts tokens; nothing is mounted by default."""

    nodes: Mapping[str, Mapping[str, KnowledgeNode]] = field(default_factory=dict)
    count: Callable[[str], int] = len


class MaterialSource(Protocol):
    """Where material cards are found: WeKnora, or the local source files. Never raises: a fault is a status."""

    @property
    def name(self) -> str:
        """``weknora | local_md``: for reports and ``degraded[]``."""

    def find(self, kb_id: str, question: str, *, timeout: float) -> Found:
        """Cards for a question within ``timeout`` seconds; the content of a hit is the card's own text, once."""


@dataclass(frozen=True)
class MaterialDesk:
    """What material retrieval works with; a source that is not set up here is ``None``."""

    rules: MaterialRules
    weknora: MaterialSource | None = None
    local: MaterialSource | None = None


class ResultSink(Protocol):
    """Where the bytes of a result go."""

    def check(self, payload: Payload) -> None:
        """Whether the result could be delivered, before any work is done. Raises as :meth:`deliver`."""

    def deliver(self, payload: Payload | None, task_id: str, document: bytes) -> None:
        """The same bytes, as often as asked. Raises ``RESULT_DIR_MISSING`` (transient), ``PATH_NOT_ALLOWED``."""


class JobFolder(Protocol):
    """``<sharedDir>/.kbw/jobs/<taskId>/``: the artefacts of one job (CONTRACT §1). Secrets are masked on the way in."""

    @property
    def path(self) -> str:
        """Absolute path, for people."""

    def read(self, name: str) -> bytes | None:
        """The whole file, ``None`` when it is missing or empty."""

    def write(self, name: str, data: bytes) -> None:
        """Temporary + fsync + rename. ``name`` may hold one folder (``replies/select-1.txt``)."""

    def write_once(self, name: str, data: bytes) -> bytes:
        """Write unless the file is there; the bytes that are there now (the first writer's)."""

    def append(self, name: str, line: JsonObject) -> None:
        """One line to a journal (``events.jsonl``, ``calls.jsonl``)."""

    def archive(self, names: Sequence[str], generation: int) -> None:
        """Move the named files, if there, to ``attempts/<generation>/``."""


class JobFolders(Protocol):
    """All job folders of the shared directory."""

    def open(self, task_id: str, *, known: bool = False) -> JobFolder:
        """The job's folder, created when it is missing.

        ``known``: the job was accepted before, so folders of jobs must be there: without them the share is gone
        (``RESULT_DIR_MISSING``, transient).
        """

    def task_ids(self) -> list[str]:
        """Jobs that have a folder, for recovery."""

    def remove(self, task_id: str) -> None:
        """Delete a job's folder with all that is in it; one that is not there is no error."""


# ---------------------------------------------------------------- the job record

State = Literal["queued", "running", "parked", "done", "failed", "cancelled"]
"""``queued``: waits for a worker · ``running``: a lease lives · ``parked``: waits until a time · the rest: over."""


@dataclass(frozen=True)
class NewJob:
    """What ``accept`` records. ``lane`` orders jobs (the conversation); ``deadline_s`` counts from accept."""

    task_id: str
    digest: str
    skill: str
    first_stage: str
    lane: str
    deadline_s: float
    source: str
    result_file: str = ""
    traceparent: str = ""


@dataclass(frozen=True)
class Record:
    """The truth about a job. Times are Redis ``TIME`` in seconds; ``0.0`` means not set."""

    task_id: str
    digest: str
    skill: str
    state: State
    stage: str
    epoch: int
    attempt: int
    generation: int
    created: float
    deadline: float
    updated: float
    lane: str = ""
    source: str = ""
    result_file: str = ""
    traceparent: str = ""
    lease_until: float = 0.0
    worker: str = ""
    parked_until: float = 0.0
    enqueued_at: float = 0.0
    woken_at: float = 0.0
    code: str = ""
    error: str = ""
    retryable: bool = False
    cancelled: bool = False
    commit_id: str = ""
    stage_at: float = 0.0
    finished: float = 0.0
    failed_stage: str = ""
    endpoint: str = ""
    blocked: str = ""
    """Why the last claim was refused from outside the job: ``order | cap | breaker | paused``."""
    blocked_by: str = ""
    """The job in front (``order``), else the gate: ``queue:<name>`` or ``endpoint:<url>``."""
    blocked_until: float = 0.0
    more_result_files: tuple[str, ...] = ()
    """Result files that repeats of the same payload named: the same bytes go there too."""
    pruned: bool = False
    """Only digest, state and commit are still known; everything else is at its default."""


@dataclass(frozen=True)
class Ack:
    """A stream entry to acknowledge in the same step that records its job."""

    stream: str
    group: str
    entry_id: str


@dataclass(frozen=True)
class Accepted:
    """``new``: recorded · ``same``: known with equal content · ``conflict``: known with other content, untouched."""

    kind: Literal["new", "same", "conflict"]
    record: Record


@dataclass(frozen=True)
class Claim:
    """The right to work on one stage until ``lease_until``; every later call proves it with ``epoch``."""

    task_id: str
    stage: str
    epoch: int
    attempt: int
    generation: int
    worker: str
    deadline: float
    lease_until: float
    max_attempts: int = 0
    """How many attempts this stage gets; at ``attempt == max_attempts`` this is the last one."""
    traceparent: str = ""
    """The sender's trace (W3C), carried into journal, log and model calls."""


@dataclass(frozen=True)
class Refusal:
    """No claim, and why.

    ``reason`` is ``unknown | over | stage | leased | parked | order | cap | breaker | paused`` or ``to_publish``: the
    claim found the job cancelled, past its deadline or out of attempts and moved it to publish. ``until`` (Redis time)
    says when another try makes sense, ``0.0`` when nobody knows.
    """

    reason: str
    until: float = 0.0


@dataclass(frozen=True)
class Failure:
    """Why a job failed for good, as the result tells it."""

    code: str
    en: str
    zh: str
    retryable: bool = False


class JobStore(Protocol):
    """The job record: small atomic changes, each a compare-and-set on the lease's epoch (DESIGN §3)."""

    def accept(self, job: NewJob, *, ack: Ack | None = None) -> Accepted:
        """Record the job, or say that it is known.

        ``ack`` is acknowledged in the same step when the job is open afterwards; for a conflict and a job that is
        over the caller acknowledges, after it has told the conflict or delivered the result again.
        """

    def claim(self, task_id: str, stage: str, worker: str, *, endpoint: str = "") -> Claim | Refusal:
        """Take the lease of ``stage`` and count an attempt; with ``endpoint``, take one of its slots too."""

    def renew(self, claim: Claim) -> bool:
        """Lengthen the lease; ``False``: lost or cancelled, stop before the next effect."""

    def checkpoint(self, claim: Claim, next_stage: str) -> bool:
        """The stage's artefact is written: move on and give the lease back. ``False``: fenced, nothing changed."""

    def park(self, claim: Claim, delay_s: float, code: str, reason: str, *, counted: bool = True) -> bool:
        """Give the lease back and wait ``delay_s`` before the same stage is tried again.

        ``counted=False`` takes the attempt back: a worker that shuts down is not the job's fault.
        """

    def fail(self, claim: Claim, failure: Failure) -> bool:
        """Note the failure and move to ``publish``."""

    def finish(self, claim: Claim, *, success: bool, code: str, commit_id: str) -> bool:
        """The result is delivered: the job is over."""


class EndpointHealth(Protocol):
    """The circuit breaker of model endpoints, fleet-wide."""

    def report(self, endpoint: str, *, ok: bool) -> None:
        """How a call ended: ``ok=False`` only for the provider's own faults (unreachable, 5xx, timeout, 429)."""


@dataclass(frozen=True)
class EndpointView:
    """One model endpoint. ``open_until`` > 0: the breaker is open until then, after it one probe decides."""

    endpoint: str
    in_flight: int
    cap: int
    waiting: int
    faults: int
    open_until: float
    paused: bool


class JobViews(Protocol):
    """Reading records, for operators, metrics and waiting."""

    def get(self, task_id: str) -> Record | None:
        """One record."""

    def failure(self, task_id: str) -> Failure | None:
        """Why the job goes to publish without an outcome, if it does."""

    def ids(self, state: State, *, oldest_first: bool = True, limit: int = 100) -> list[str]:
        """Task ids of one state, from sorted sets, never by scanning keys."""

    def counts(self) -> dict[str, int]:
        """Number of jobs by state."""

    def dead(self, limit: int = 100) -> list[str]:
        """Jobs that ended with a failure and were neither replayed nor dropped, oldest first."""

    def figures(self) -> dict[str, int]:
        """Exact counters of the whole fleet since the record began; names in ``worker/adapters/job_store``."""

    def endpoints(self) -> list[EndpointView]:
        """What holds the model endpoints' jobs back, if anything."""


@dataclass(frozen=True)
class OpenJob:
    """What counting needs of an open job. ``ready_at``: since when it could be worked on, were nothing in its way."""

    stage: str
    state: State
    blocked: str
    created: float
    ready_at: float
    lease_until: float


class JobCensus(Protocol):
    """Counting, for metrics and health: the server's time, so that clocks of hosts do not matter."""

    def now(self) -> float:
        """The server's time in seconds since the epoch."""

    def open_jobs(self) -> list[OpenJob]:
        """Every open job."""

    def last_claims(self) -> dict[str, float]:
        """When a job of each queue was claimed last; a queue that never served is not in it."""

    def tally(self, counts: Mapping[str, int]) -> None:
        """Add to the counters that ``JobViews.figures`` shows."""


class JobSweep(Protocol):
    """What the reconciler needs."""

    def elect(self, worker: str) -> bool:
        """Whether this worker is (now) the one that reconciles; to be asked again before each round."""

    def stalled(self, limit: int) -> list[tuple[str, str]]:
        """``(task_id, stage)`` of open jobs without live lease that are due and not woken lately; marks them woken."""

    def freed(self, limit: int) -> list[tuple[str, str]]:
        """``(task_id, stage)`` that the last releases made claimable: next of a lane, waiter for a slot, cancelled.

        Ask after each release and wake them at once; what is forgotten comes up in ``stalled``.
        """

    def waiting(self, stage: str, limit: int) -> list[str]:
        """Task ids that wait at ``stage`` (the committer's queue), oldest first."""

    def lock(self, name: str, owner: str, ttl_s: float) -> bool:
        """Take or lengthen a named lease (one committer a repository)."""

    def unlock(self, name: str, owner: str) -> None:
        """Give it back if it is still ours."""


Memory = Literal["record", "tombstone", "nothing"]
CancelOutcome = Literal["requested", "too_late", "over", "unknown"]
ReplayOutcome = Literal["replayed", "open", "unknown"]


class JobControl(Protocol):
    """What operators do to jobs and gates. A gate is ``queue:<name>`` or ``endpoint:<url>``."""

    def cancel(self, task_id: str) -> CancelOutcome:
        """Persistent; a job nobody works on goes to publish at once. ``too_late``: its commit has begun."""

    def replay(self, task_id: str, stage: str, *, deadline_s: float = 0.0, force: bool = False) -> ReplayOutcome:
        """A new generation from ``stage`` of a job that is over (``force``: of any job); old workers stay fenced.

        ``deadline_s`` counts from now; ``0.0``: as long as the first time.
        """

    def pause(self, gate: str) -> None:
        """No claim through this gate until ``resume``; running work goes on."""

    def resume(self, gate: str) -> None:
        """Open the gate and wake what waits before it."""

    def paused(self) -> list[str]:
        """The gates that are closed, sorted."""


class JobArchive(Protocol):
    """The far ends of a job's life: forgetting, and coming back from the job folders."""

    def prune(self, older_than_s: float, limit: int = 500) -> list[str]:
        """Forget jobs that ended that long ago (a tombstone knows a late repeat); their ids, for their folders."""

    def remembers(self, task_ids: Sequence[str]) -> dict[str, Memory]:
        """What is known of each job: its whole record, what a pruned one leaves behind, or nothing."""

    def drop(self, task_id: str) -> bool:
        """Take a job off the dead letters; its record stays."""

    def restore(self, record: Record, *, deadline_s: float, failure: Failure | None = None) -> bool:
        """Put back a job that is unknown (``False``: known, untouched); ``deadline_s`` when it has no deadline."""


class Clock(Protocol):
    """Time and chance, as arguments."""

    def now(self) -> float:
        """Seconds since the epoch, UTC."""

    def monotonic(self) -> float:
        """Seconds for measuring durations and deadlines inside one process."""

    def sleep(self, seconds: float) -> None:
        """Wait."""

    def token(self, n_bytes: int) -> str:
        """Random lower-case hex, ``2 * n_bytes`` digits."""


@dataclass(frozen=True)
class Ports:
    """Everything a stage may use, built once in ``worker/bootstrap.py`` (or by a test from fakes)."""

    kb: KbReader
    writer: KbWriter
    attachments: AttachmentReader
    model: ModelDriver
    sink: ResultSink
    folders: JobFolders
    clock: Clock
    resolve_repo: Callable[[Payload], RepoRef]
    limits: Limits = field(default_factory=Limits)
    fresh_kb: bool = False
    """The file commands look the remote's head up now; workers at most 2 s ago."""
    session_mode: Literal["task", "stage", "attempt"] = "task"
    model_timeout_s: float = 300.0
    bot_name: str = "kbw"
    material: MaterialDesk | None = None
    knowledge: KnowledgeMounts = field(default_factory=KnowledgeMounts)
