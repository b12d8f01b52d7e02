"""W3C Trace Context: the ``traceparent`` that joins a job to its sender's trace; must not record a span.

https://www.w3.org/TR/trace-context/ : version, trace id, the sender's span, flags. Where nobody sent one, a job begins
its own trace; the span in it then follows from the trace id, which tells such a one from a sender's.
"""

from __future__ import annotations

import hashlib
import re

from tasks.contract.shape import JsonObject

FIELD = "traceparent"
_FORM = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


def read_traceparent(value: object) -> str:
    """The value when it is a ``traceparent``, else ``""``: a malformed one is nobody's fault to stop for."""
    return value if isinstance(value, str) and _FORM.fullmatch(value) else ""


def sent_traceparent(document: JsonObject | None, header: str = "") -> str:
    """What the sender gave beside the payload, else in it, else ``""``."""
    return read_traceparent(header) or read_traceparent((document or {}).get(FIELD))


def fresh_traceparent(trace_id: str) -> str:
    """The trace of a job whose sender named none; ``trace_id``: 32 random hex digits."""
    return f"00-{trace_id}-{_own_span(trace_id)}-01"


def is_fresh(traceparent: str) -> bool:
    """Whether the job began this trace itself."""
    return bool(traceparent) and span_of(traceparent) == _own_span(trace_of(traceparent))


def given_by_sender(traceparent: str) -> str:
    """The trace that the sender knows and finds in the result; ``""`` when it named none."""
    return "" if is_fresh(traceparent) else traceparent


def trace_of(traceparent: str) -> str:
    """The trace id, one for all attempts and replays of a job."""
    return traceparent[3:35]


def span_of(traceparent: str) -> str:
    """The id of the span that it names."""
    return traceparent[36:52]


def _own_span(trace_id: str) -> str:
    return hashlib.sha256(trace_id.encode()).hexdigest()[:16]
