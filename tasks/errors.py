"""Why a job cannot go on: one code enum, two kinds of error; must not decide what is retried (``tasks.base`` does)."""

from __future__ import annotations

from enum import StrEnum


class Code(StrEnum):
    """Error codes of CONTRACT §4.8. Others may be added, none is ever renamed: the backend matches on them."""

    BAD_PAYLOAD = "BAD_PAYLOAD"
    UNKNOWN_SKILL = "UNKNOWN_SKILL"
    CONFLICT = "CONFLICT"
    PATH_NOT_ALLOWED = "PATH_NOT_ALLOWED"
    GITEA_NOT_ALLOWED = "GITEA_NOT_ALLOWED"
    KB_UNREACHABLE = "KB_UNREACHABLE"
    KB_AUTH = "KB_AUTH"
    KB_NOT_FOUND = "KB_NOT_FOUND"
    COMMIT_GONE = "COMMIT_GONE"
    NO_MODEL = "NO_MODEL"
    MODEL_UNREACHABLE = "MODEL_UNREACHABLE"
    MODEL_AUTH = "MODEL_AUTH"
    MODEL_REFUSED = "MODEL_REFUSED"  # the server refuses the request itself: too long, wrong field, quota used up
    RESULT_DIR_MISSING = "RESULT_DIR_MISSING"
    DEADLINE = "DEADLINE"
    CANCELLED = "CANCELLED"
    EXHAUSTED = "EXHAUSTED"
    INTERNAL = "INTERNAL"
    # what can be wrong with one model reply
    EMPTY_FILE = "EMPTY_FILE"
    INVALID_ENCODING = "INVALID_ENCODING"
    INVALID_JSON = "INVALID_JSON"
    AMBIGUOUS_JSON = "AMBIGUOUS_JSON"
    DUPLICATE_KEY = "DUPLICATE_KEY"
    SCHEMA = "SCHEMA"
    TRUNCATED = "TRUNCATED"
    EMPTY_ANSWER = "EMPTY_ANSWER"
    ANSWER_TOO_LARGE = "ANSWER_TOO_LARGE"
    SOURCES_REQUIRED = "SOURCES_REQUIRED"
    UNKNOWN_SOURCE = "UNKNOWN_SOURCE"


class JobError(Exception):
    """A job cannot go on as it is.

    ``code`` goes to results and metrics. ``en`` is for operators (CLI, logs); ``zh`` is a Chinese sentence for the
    result's ``errors[]``. Both name the field, file, host or setting, and never hold a secret or document text.
    """

    retryable = False

    def __init__(self, code: Code, *, en: str, zh: str) -> None:
        super().__init__(f"{code}: {en}")
        self.code = code
        self.en = en
        self.zh = zh


class PermanentError(JobError):
    """Trying again changes nothing: the job fails at once and its error result is published."""


class TransientError(JobError):
    """The same try may succeed later. ``retry_after`` (seconds) is what the other side asked for, else ``None``."""

    retryable = True

    def __init__(self, code: Code, *, en: str, zh: str, retry_after: float | None = None) -> None:
        super().__init__(code, en=en, zh=zh)
        self.retry_after = retry_after


class FencedError(Exception):
    """This worker's lease is over or was taken (old epoch): it stops before any further effect, without a word."""


class StoreUnavailableError(Exception):
    """The job record cannot be reached: nothing is known to be decided; leases run out and the reconciler goes on."""
