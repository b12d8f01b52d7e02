"""Takes payload files one after the other, as the one elected scanner; must not know how files are found."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from threading import Event

from tasks.accept import OVER, Intake, accept, conflict
from tasks.contract.payload import DEFAULT_DEADLINE_S, content_digest
from tasks.errors import JobError, TransientError
from tasks.ports import JobArchive, JobSweep, JobViews, Record
from tasks.restore import answered_record
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
        """One look at the directory."""
        for found in self.scanner.look():
            if stop.is_set():
                return
            try:
                self.take(found)
            except TransientError as error:
                self.scanner.again(found.path)
                log.warning("intake.later", extra={"kbw": {"path": str(found.path), "reason": error.en}})
            except JobError as error:
                self.refusals.refuse(error, content=found.content, path=str(found.path), document=found.document)
            except Exception:
                self.scanner.again(found.path)
                raise

    def take(self, found: Found) -> None:
        """Accept one file, or recognise that it was answered before us."""
        record = self.views.get(found.task_id)
        if record is None and self._answered_before(found):
            return
        if record and record.state in OVER and found.modified <= record.finished and _same(found, record):
            return  # the very file that this job was accepted from, seen again after a restart
        accepted = accept(found.document, source=f"file:{found.path}", intake=self.intake)
        if accepted.kind == "conflict":
            raise conflict(found.task_id)
        log.info(
            "accepted", extra={"kbw": {"task_id": found.task_id, "kind": accepted.kind, "source": str(found.path)}}
        )

    def _answered_before(self, found: Found) -> bool:
        """Whether the ``resultFile`` holds a result already: the job was answered by another system and is not run."""
        result = self.scanner.result_at(found)
        if result is None:
            return False
        self.archive.restore(answered_record(found.document, result, source="foreign"), deadline_s=DEFAULT_DEADLINE_S)
        log.info("answered.before", extra={"kbw": {"task_id": found.task_id, "source": str(found.path)}})
        return True


def _same(found: Found, record: Record) -> bool:
    return content_digest(found.document) == record.digest
