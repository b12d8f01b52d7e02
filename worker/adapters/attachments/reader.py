"""The attachment reader: check, cache, child process, budget, view; must never raise for a file."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from tasks.contract.context import AttachmentFault, AttachmentView, Limits
from tasks.contract.payload import AttachmentRef
from tasks.contract.shape import JsonObject
from worker.adapters.attachments.budget import fair_shares
from worker.adapters.attachments.cache import PreviewCache
from worker.adapters.attachments.checked_file import CheckedFile, FileFaultError, open_checked
from worker.adapters.attachments.child import ChildAnswer, ChildLimits, ocr_limits, run_child
from worker.adapters.attachments.faults import CODES, fault, shown_name
from worker.paths import AllowedRoots

log = logging.getLogger(__name__)

_SHORTEST_TRY_S = 0.5


@dataclass(frozen=True)
class ReaderLimits:
    """What attachments may cost. Bytes and seconds; ``job_wall_s`` is for all attachments of one job together.

    ``ocr`` is for the second look at a picture or a scan; ``None``: there is none.
    """

    max_bytes: int = 512 * 1024 * 1024
    max_attachments: int = 20
    max_children: int = 2
    job_wall_s: float = 30.0
    child: ChildLimits = field(default_factory=ChildLimits)
    ocr: ChildLimits | None = field(default_factory=ocr_limits)


@dataclass(frozen=True)
class _Read:
    """One attachment after reading: what its view is made of."""

    ref: AttachmentRef
    answer: ChildAnswer
    size: int = 0
    sha256: str = ""
    verified: bool = False
    elapsed_ms: int = 0


class ChildProcessReader:
    """Reads attachments of jobs; safe to share between threads. At most ``max_children`` processes at once."""

    def __init__(
        self,
        roots: AllowedRoots,
        cache: PreviewCache | None = None,
        limits: ReaderLimits | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._roots = roots
        self._cache = cache
        self._limits = limits or ReaderLimits()
        self._monotonic = monotonic
        self._told = False
        self._slots = threading.BoundedSemaphore(self._limits.max_children)

    def read(
        self, attachments: Sequence[AttachmentRef], shared_dir: str | None, limits: Limits
    ) -> list[AttachmentView]:
        """One view an attachment, in order; see :class:`tasks.ports.AttachmentReader`."""
        if not attachments:
            return []
        deadline = self._monotonic() + self._limits.job_wall_s
        tried = attachments[: self._limits.max_attachments]
        with ThreadPoolExecutor(max_workers=min(self._limits.max_children, len(tried))) as pool:
            done = list(pool.map(lambda ref: self._read_one(ref, shared_dir, limits, deadline), tried))
        done += [_Read(ref, _EXHAUSTED) for ref in attachments[len(tried) :]]
        shares = fair_shares(
            [len(read.answer.text) for read in done],
            limits.max_attachment_chars_per_file,
            limits.max_total_attachment_chars,
        )
        pictures = self._limits.ocr is not None
        return [_view(read, share, pictures_are_read=pictures) for read, share in zip(done, shares, strict=True)]

    def _read_one(self, ref: AttachmentRef, shared_dir: str | None, limits: Limits, deadline: float) -> _Read:
        started = self._monotonic()
        try:
            file = open_checked(
                self._roots, ref, shared_dir, max_bytes=self._limits.max_bytes, hurry=lambda: self._hurry(deadline)
            )
        except FileFaultError as error:
            return _Read(ref, ChildAnswer(fault=error.code), elapsed_ms=self._since(started))
        try:
            answer = self._answer(file, ref, limits.max_attachment_chars_per_file, deadline)
            return _Read(ref, answer, file.size, file.sha256, file.verified, self._since(started))
        except FileFaultError as error:
            return _Read(
                ref, ChildAnswer(fault=error.code), file.size, file.sha256, file.verified, self._since(started)
            )
        finally:
            file.close()

    def _answer(self, file: CheckedFile, ref: AttachmentRef, chars: int, deadline: float) -> ChildAnswer:
        name = _hint(ref)
        key = f"{chars}:{self._limits.child}:{self._limits.ocr}"
        if self._cache and (kept := self._cache.get(file.sha256, name, key)):
            return kept
        with self._slots:
            answer = self._run(file, name, chars, deadline, self._limits.child)
            if answer.fault == "NO_TEXT_LAYER" and self._limits.ocr:
                answer = self._looked_at(file, name, chars, deadline, answer, self._limits.ocr)
        if not file.unchanged():
            raise FileFaultError("INTEGRITY_MISMATCH")
        if self._cache:
            self._cache.put(file.sha256, name, key, answer)
        return answer

    def _run(self, file: CheckedFile, name: str, chars: int, deadline: float, limits: ChildLimits) -> ChildAnswer:
        self._hurry(deadline)
        left = deadline - self._monotonic()
        try:
            answer = run_child(file.descriptor, name, chars, limits, min(left, limits.wall_s))
        except OSError as error:  # no process, no memory: ours to mend, not the file's fault, and not cached
            log.warning("attachment.child_not_started", extra={"kbw": {"code": type(error).__name__}})
            return ChildAnswer(fault="OUT_OF_MEMORY", settled=False)
        self._tell_isolation(answer)
        return _EXHAUSTED if answer.fault == "TIMEOUT" and left < limits.wall_s else answer

    def _looked_at(
        self, file: CheckedFile, name: str, chars: int, deadline: float, first: ChildAnswer, limits: ChildLimits
    ) -> ChildAnswer:
        """What OCR reads; the first answer when it reads nothing, and then kept only if it would read nothing again."""
        try:
            second = self._run(file, name, chars, deadline, limits)
        except FileFaultError:  # no time left for it
            return replace(first, settled=False)
        return replace(first, settled=first.settled and second.settled) if second.fault else second

    def _tell_isolation(self, answer: ChildAnswer) -> None:
        if not self._told and answer.meta is not None:  # the child lived to say it
            self._told = True
            log.log(
                logging.INFO if answer.isolated else logging.WARNING,
                "attachment.child_network",
                extra={"kbw": {"isolated": answer.isolated}},
            )

    def _hurry(self, deadline: float) -> None:
        if deadline - self._monotonic() < _SHORTEST_TRY_S:
            raise FileFaultError("BUDGET_EXHAUSTED")

    def _since(self, started: float) -> int:
        return round((self._monotonic() - started) * 1000)


_ENDING_OF_TYPE = {
    "text/csv": ".csv",
    "text/html": ".html",
    "text/markdown": ".md",
    "text/xml": ".xml",
    "application/xml": ".xml",
    "application/json": ".json",
    "application/yaml": ".yaml",
    "message/rfc822": ".eml",
}


def _hint(ref: AttachmentRef) -> str:
    """A name whose ending tells kinds of text apart: the file's own, else the stored one, else from the MIME type."""
    for name in (ref.file_name, ref.storage_path or ""):
        if "." in (shown := shown_name(name)):
            return shown
    return shown_name(ref.file_name) + _ENDING_OF_TYPE.get(ref.mime_type.partition(";")[0].strip().lower(), "")


_EXHAUSTED = ChildAnswer(fault="BUDGET_EXHAUSTED", settled=False)


def _view(read: _Read, share: int, *, pictures_are_read: bool) -> AttachmentView:
    answer = read.answer
    text = answer.text[:share].rstrip()
    code = answer.fault if answer.fault in CODES or not answer.fault else "CORRUPT"
    if not code and not text.strip():
        code = "BUDGET_EXHAUSTED"
    truncated = answer.truncated or len(answer.text) > share
    metadata: JsonObject = {
        "detectedType": answer.kind,
        **(answer.meta or {}),
        "verified": read.verified,
        "elapsedMs": read.elapsed_ms,
    }
    if not code:
        metadata |= {
            "charsRead": len(answer.text),
            "truncated": truncated,
            "truncatedAt": len(text) if truncated else None,
        }
    return AttachmentView(
        attachment_id=read.ref.attachment_id,
        file_name=read.ref.file_name,
        mime_type=read.ref.mime_type,
        sha256=read.sha256 or read.ref.sha256 or "",
        size=read.size or read.ref.size or 0,
        text_preview="" if code else text,
        preview_available=not code,
        preview_status="unavailable" if code else "truncated" if truncated else "ok",
        error=_fault(code, read.ref, pictures_are_read=pictures_are_read) if code else None,
        metadata=metadata,
    )


def _fault(code: str, ref: AttachmentRef, *, pictures_are_read: bool) -> AttachmentFault:
    return fault(code, ref.file_name or ref.storage_path or "", pictures_are_read=pictures_are_read)
