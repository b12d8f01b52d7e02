"""Takes payload files one after the other, as the one elected scanner; must not know how files are found."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from threading import Event

from tasks.accept import OVER, Intake, accept, as_kept, conflict
from tasks.contract import strict_json
from tasks.contract.payload import DEFAULT_DEADLINE_S, content_digest
from tasks.contract.shape import JsonObject
from tasks.errors import Code, JobError, PermanentError, StoreUnavailableError, TransientError
from tasks.ports import JobArchive, JobSweep, JobViews, Record
from tasks.restore import answered_record
from tasks.stages.job import PAYLOAD, RESULT
from worker.intake.document import refuse_double_names
from worker.intake.refusal import Refusals
from worker.intake.shared_dir import Found, SharedDirScanner

log = logging.getLogger("kbw.intake")

LEADER_TTL_S = 10.0


@dataclass
class IntakeLoop:
    """One round: look, and accept what was found. ``name`` is this process in the leader's lease."""

    scanner: SharedDirScanner
    intake: Intake
    views: JobViews
    sweep: JobSweep
    archive: JobArchive
    refusals: Refusals
    name: str

    def run(self, stop: Event, poll_s: float) -> None:
        """Until ``stop`` is set. A fault of one round (Redis away, share gone) is told and the next round comes."""
        while not stop.wait(poll_s):
            try:
                if self.sweep.lock("intake", self.name, LEADER_TTL_S):
                    self.round(stop)
            except Exception as error:  # noqa: BLE001 - the loop must outlive any fault of one round
                log.warning("intake.failed", extra={"kbw": {"reason": f"{type(error).__name__}: {error}"}})
        self.sweep.unlock("intake", self.name)

    def round(self, stop: Event) -> None:
        """One look at the directory. A file that could not be decided is given out again at a later look."""
        waiting = self.scanner.look()
        while waiting and not stop.is_set():
            found = waiting.pop(0)
            try:
                self._take_or_refuse(found)
            except TransientError as error:
                self.scanner.again(found.path)
                log.warning("intake.later", extra={"kbw": {"path": str(found.path), "reason": error.en}})
            except StoreUnavailableError:
                for left in (found, *waiting):
                    self.scanner.again(left.path)
                raise
            except Exception as error:
                self.scanner.again(found.path)  # a fault of ours with one file must not hold back the others
                fields = {"path": str(found.path), "reason": type(error).__name__}
                log.exception("intake.crashed", extra={"kbw": fields})

    def _take_or_refuse(self, found: Found) -> None:
        try:
            self.take(found)
        except TransientError:
            raise
        except JobError as error:
            self._refuse(found, error)

    def take(self, found: Found) -> None:
        """Accept one file, or recognise that it was answered before us."""
        document = as_kept(found.document, self.intake.hide)
        if not document.get("resultFile"):
            raise _no_result_file()
        record = self.views.get(found.task_id)
        if record is None and self._answered_before(found, document):
            return
        if record and content_digest(document) == record.digest and _is_history(found, document, record):
            return
        source = os.fsencode(found.path).decode(errors="replace")
        refuse_double_names(found.content)
        accepted = accept(document, source=f"file:{source}", intake=self.intake)
        if accepted.kind == "conflict":
            self._refuse(found, conflict(found.task_id), accepted.record)
            return
        log.info("accepted", extra={"kbw": {"task_id": found.task_id, "kind": accepted.kind, "source": source}})

    def _refuse(self, found: Found, error: JobError, first: Record | None = None) -> None:
        self.refusals.refuse(error, content=found.content, path=str(found.path), document=found.document, first=first)

    def _answered_before(self, found: Found, document: JsonObject) -> bool:
        """Whether the ``resultFile`` holds a result already: the job was answered by another system and is not run.

        Its folder gets both, so that it stays known without Redis and can be replayed. The result comes first: a folder
        with a payload alone would be taken for a job to go on with.
        """
        result = self.scanner.result_at(found)
        if result is None or self._ours(found.task_id):
            return False
        record = answered_record(document, result, source=f"foreign:{found.path}")
        folder = self.intake.folders.open(found.task_id)
        folder.write_once(RESULT, strict_json.dumps(result))
        folder.write_once(PAYLOAD, strict_json.dumps(document))
        self.archive.restore(record, deadline_s=DEFAULT_DEADLINE_S)
        log.info("answered.before", extra={"kbw": {"task_id": found.task_id, "source": str(found.path)}})
        return True

    def _ours(self, task_id: str) -> bool:
        """Whether a job folder knows this id: then Redis lost it, and ``accept`` puts it back."""
        return task_id in self.intake.folders.task_ids() and bool(self.intake.folders.open(task_id).read(PAYLOAD))


def _is_history(found: Found, document: JsonObject, record: Record) -> bool:
    """Whether it is a file that a job that is over was accepted from, seen again after a restart.

    A repeat may be written before the job ends and found after it: its own ``resultFile`` has got nothing yet.
    """
    if record.state not in OVER or record.pruned:
        return record.pruned
    known = document["resultFile"] in (record.result_file, *record.more_result_files)
    return known and found.modified <= record.finished


def _no_result_file() -> PermanentError:
    return PermanentError(
        Code.BAD_PAYLOAD,
        en="payload refused: resultFile (missing): required in the shared directory",
        zh="任务内容不合要求：缺少必填字段 resultFile（共享目录方式必须给出）",
    )
