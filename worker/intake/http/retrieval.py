"""``POST /retrieval``: the team's pages for other systems, in Dify's external-knowledge form; must not write anything.

Apart from HTTP: the header and the bytes in, an answer out. Off without its own token: who may ask questions of the
pages need not be who may hand in jobs. https://docs.dify.ai: External Knowledge API.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tasks.errors import JobError, TransientError
from tasks.ports import KbReader, RankedPage, RepoRef, Snapshot
from worker.adapters.kb_git.terms import question_terms, terms_of
from worker.intake.http.answer import Answer, json_answer

log = logging.getLogger("kbw.http")

DEFAULT_TOP_K, MAX_TOP_K = 3, 50
MAX_QUERY_CHARS = 8_000
MAX_CONTENT_CHARS = 1_200


class _RefusedError(Exception):
    """The request gets no records; Dify shows ``error_msg`` to whoever configured it."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.answer = json_answer(status, {"error_code": code, "error_msg": message})


@dataclass(frozen=True)
class RetrievalApi:
    """``served`` finds the repository of a ``knowledge_id`` among those that may be read, ``None``: no such base.

    ``mask`` hides configured secrets in what goes out. Blocking: call it from a thread.
    """

    kb: KbReader
    served: Callable[[str], RepoRef | None]
    token: str
    mask: Callable[[object], object]

    def refusal(self, authorization: str) -> Answer | None:
        """403 with 1001 or 1002 for whoever must not ask; to be called before the body is read."""
        try:
            self._check(authorization)
        except _RefusedError as refused:
            return refused.answer
        return None

    def retrieve(self, content: bytes) -> Answer:
        """200 with ``records``; 404 (2001), 400 (3001, 3002), 503 (5001) in Dify's error form."""
        try:
            wanted = _Wanted.read(content)
            repo = self.served(wanted.knowledge_id)
            if repo is None:
                raise _RefusedError(404, 2001, "the knowledge does not exist: knowledge_id is owner/repository")
            return json_answer(200, self.mask({"records": self._records(repo, wanted)}))
        except _RefusedError as refused:
            return refused.answer
        except JobError as error:
            log.warning("retrieval.failed", extra={"kbw": {"code": error.code}})
            later = isinstance(error, TransientError)
            answer = {"error_code": 5001 if later else 2001, "error_msg": f"{error.code}: the pages cannot be read"}
            return json_answer(503 if later else 404, answer)

    def _check(self, authorization: str) -> None:
        """Compared as digests: neither length nor content of the right token shows in the time it takes."""
        scheme, _, given = authorization.partition(" ")
        if scheme.lower() != "bearer" or not given.strip():
            raise _RefusedError(403, 1001, "invalid Authorization header: send `Authorization: Bearer <api-key>`")
        right = hashlib.sha256(self.token.encode()).digest()
        if not self.token or not hmac.compare_digest(hashlib.sha256(given.strip().encode()).digest(), right):
            log.warning("http.unauthorized", extra={"kbw": {"path": "/retrieval"}})
            raise _RefusedError(403, 1002, "authorization failed: this is not the configured key")

    def _records(self, repo: RepoRef, wanted: _Wanted) -> list[dict[str, object]]:
        snapshot = self.kb.latest(repo, fresh=False)
        pages = snapshot.rank(wanted.query, wanted.top_k)
        texts = [page.passage.strip() or _beginning(snapshot, page) for page in pages]
        scores = scored(wanted.query, pages, texts)
        return [
            {
                "content": text[:MAX_CONTENT_CHARS],
                "score": score,
                "title": page.facts.title or page.facts.path,
                "metadata": {
                    "path": page.facts.path,
                    "type": page.facts.type,
                    "keywords": list(page.facts.keywords),
                    "updatedAt": page.facts.updated_at,
                    "repo": str(repo),
                    "commit": snapshot.commit,
                },
            }
            for page, text, score in zip(pages, texts, scores, strict=True)
            if text and score >= wanted.score_threshold
        ]


@dataclass(frozen=True)
class _Wanted:
    knowledge_id: str
    query: str
    top_k: int
    score_threshold: float

    @classmethod
    def read(cls, content: bytes) -> _Wanted:
        try:
            document = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise _RefusedError(400, 3001, "the body is no valid JSON") from error
        if not isinstance(document, Mapping):
            raise _RefusedError(400, 3001, "the body is no JSON object")
        setting = document.get("retrieval_setting") or {}
        if not isinstance(setting, Mapping):
            raise _RefusedError(400, 3001, "retrieval_setting is no object")
        condition = document.get("metadata_condition")
        if condition and (not isinstance(condition, Mapping) or condition.get("conditions")):
            raise _RefusedError(400, 3002, "metadata_condition is not supported: remove the metadata filter")
        top_k = _number(setting, "top_k", DEFAULT_TOP_K, 1, 1_000_000)
        threshold = _number(setting, "score_threshold", 0.0, 0.0, 1.0)
        return cls(
            _text(document, "knowledge_id", 300),
            _text(document, "query", MAX_QUERY_CHARS),
            min(int(top_k), MAX_TOP_K),
            threshold,
        )


def scored(query: str, pages: Sequence[RankedPage], texts: Sequence[str]) -> list[float]:
    """The share of the question's weighted words that a page's title, keywords and passage hold, 0 to 1.

    The ranking's own scores compare only within one answer, and a threshold needs a number that means the same each
    time. Pages stay in rank order: no page scores higher than the one before it.
    """
    weights = question_terms(query)
    total = sum(weights.values()) or 1.0
    scores: list[float] = []
    for page, text in zip(pages, texts, strict=True):
        held = set(terms_of(" ".join((page.facts.title, *page.facts.keywords, text))))
        share = sum(weight for term, weight in weights.items() if term in held) / total
        scores.append(round(min(share, 1.0, *scores[-1:]), 4))
    return scores


def _beginning(snapshot: Snapshot, page: RankedPage) -> str:
    text = snapshot.read(page.facts.path) or ""
    if text.startswith("---"):
        text = text.partition("\n---")[2]
    return text.strip()[:MAX_CONTENT_CHARS]


def _text(document: Mapping[str, object], name: str, most: int) -> str:
    value = document.get(name)
    if not isinstance(value, str) or not value.strip():
        raise _RefusedError(400, 3001, f"{name} is missing or no text")
    return value.strip()[:most].encode("utf-8", "replace").decode()


def _number(setting: Mapping[str, object], name: str, default: float, low: float, high: float) -> float:
    value = setting.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise _RefusedError(400, 3001, f"retrieval_setting.{name} must be a number from {low:g} to {high:g}")
    return float(value)
