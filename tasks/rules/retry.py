"""How long a job waits before the same stage is tried again; must not decide whether it is (``tasks.base`` does)."""

from __future__ import annotations

from tasks.errors import Code, TransientError

_FIRST_S = {Code.MODEL_UNREACHABLE: 20.0, Code.KB_UNREACHABLE: 2.0, Code.RESULT_DIR_MISSING: 2.0}
_LONGEST_S = {Code.MODEL_UNREACHABLE: 300.0, Code.RESULT_DIR_MISSING: 30.0}
_DEFAULT_FIRST_S = 2.0
_DEFAULT_LONGEST_S = 60.0


def delay_before_retry(error: TransientError, attempt: int, chance: float) -> float:
    """Seconds: doubled with each ``attempt`` (1, 2, …) and spread by ``chance`` (0-1) against a stampede.

    What the other side asked for (``retry_after``) is never undercut. The first step for the model is long because a
    gateway retries its own provider for up to 180 s (facts/openclaw §2).
    """
    first = _FIRST_S.get(error.code, _DEFAULT_FIRST_S)
    longest = _LONGEST_S.get(error.code, _DEFAULT_LONGEST_S)
    backoff = min(longest, first * float(2 ** min(attempt - 1, 16))) * (0.5 + chance / 2)
    return max(backoff, error.retry_after or 0.0)
