"""Delivers results to the stream of results beside the result file; must not change a byte of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from tasks.contract.payload import Payload
from tasks.errors import Code, JobError, StoreUnavailableError, TransientError
from tasks.ports import ResultSink


def result_fields(task_id: str, document: bytes) -> dict[str, str]:
    """A result as an entry of the stream (CONTRACT §4.7); ``result`` is the document's very text.

    ``traceparent`` is beside it for a job whose sender named one, so that a consumer need not read the document first.
    """
    result = json.loads(document)
    trace = str(result.get("traceparent") or "")
    return {
        "taskId": task_id,
        "kind": "result",
        "success": "true" if result.get("success") is True else "false",
        "errorCode": str(result.get("errorCode") or ""),
        "result": document.decode("utf-8"),
        **({"traceparent": trace} if trace else {}),
    }


class FileAndStreamSink:
    """``ResultSink``: the result file, and an entry on the stream for every job, however it came in.

    A result whose file cannot be written is on the stream all the same. ``publish_once`` is used while the file is
    waited for, so that a share that is gone for a day does not fill the stream with copies.
    """

    def __init__(
        self,
        file: ResultSink,
        *,
        publish: Callable[[Mapping[str, str]], None],
        publish_once: Callable[[str, Mapping[str, str]], None],
    ) -> None:
        self._file = file
        self._publish = publish
        self._publish_once = publish_once

    def check(self, payload: Payload) -> None:
        """Whether the file could be written now; the stream always can. Raises as the file's sink."""
        self._file.check(payload)

    def deliver(self, payload: Payload | None, task_id: str, document: bytes) -> None:
        """Both ways; what the file's sink raises is raised after the stream has the result."""
        fields = result_fields(task_id, document)
        try:
            self._file.deliver(payload, task_id, document)
        except TransientError:
            self._stream(lambda: self._publish_once(task_id, fields))
            raise
        except JobError:
            self._stream(lambda: self._publish(fields))
            raise
        self._stream(lambda: self._publish(fields))

    def _stream(self, add: Callable[[], None]) -> None:
        try:
            add()
        except StoreUnavailableError as error:
            raise TransientError(
                Code.INTERNAL,
                en=f"the result could not be added to the stream of results: {error}; will be tried again",
                zh="结果暂时无法写入结果流",
            ) from error
