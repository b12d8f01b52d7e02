"""Logs: one line an event, JSON or text, secrets masked, never document text; must not decide what is logged."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any, Literal

from worker.masking import SecretMask

FIELDS = "kbw"
"""``extra={FIELDS: {...}}`` carries an event's fields to the formatter."""


_LIBRARIES = ("celery", "kombu", "amqp", "httpx", "httpcore", "httpx2", "httpcore2", "git", "opentelemetry", "urllib3")


class _Formatter(logging.Formatter):
    def __init__(self, mask: SecretMask, form: Literal["json", "text"]) -> None:
        super().__init__()
        self._mask = mask
        self._form = form

    def format(self, record: logging.LogRecord) -> str:
        # half a surrogate pair in a name must not cost the line: standard error may be a strict UTF-8 stream
        return self._line(record).encode("utf-8", "backslashreplace").decode()

    def _line(self, record: logging.LogRecord) -> str:
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created))
        fields: dict[str, Any] = getattr(record, FIELDS, {})
        if self._form == "json":
            line: dict[str, Any] = {"at": at, "level": record.levelname, "logger": record.name}
            line |= {"event": record.getMessage(), **fields}
            if record.exc_info:
                line["trace"] = self.formatException(record.exc_info)
            text = json.dumps(line, ensure_ascii=False, default=str)
            if self._mask.text(text) == text:
                return text
            return json.dumps(self._mask.value(line), ensure_ascii=False, default=self._text_of)
        shown = {key: value for key, value in fields.items() if value not in ("", None) and key not in ("at", "event")}
        told = " ".join(f"{key}={value}" for key, value in shown.items())
        text = f"{at} {record.levelname:<7} {record.getMessage()} {told}".rstrip()
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        return self._mask.text(text)

    def _text_of(self, value: object) -> str:
        return self._mask.text(str(value))


def set_up_logging(mask: SecretMask, form: Literal["json", "text"], level: str) -> None:
    """Send all loggers of this process to standard error in one form; libraries only from warnings on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter(mask, form))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    logging.captureWarnings(capture=True)  # celery warns with several lines of text; ours are one line each
    for name in _LIBRARIES:
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLevelName(level)))
    for name in ("mcp", "client"):  # the MCP SDK logs pieces of what a server sent, which may be a material card
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
