"""Where results and artefacts go; must not know what is in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tasks.contract.payload import Payload
    from tasks.contract.shape import JsonObject


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
