"""Reading attachments and asking a model; must not know a vendor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tasks.contract.context import AttachmentView, Limits
    from tasks.contract.payload import AttachmentRef
    from tasks.contract.shape import JsonObject


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
