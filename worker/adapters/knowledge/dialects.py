"""What each kind of service is sent and how its answer is read, as pure functions; must not call anything.

Dify's external knowledge API and RAGFlow's retrieval are documented by their makers; ``generic`` is any service that
takes a question and returns text, described by ``config.request`` and ``config.response``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tasks.knowledge.found import Hit, ScoreKind, Status
from tasks.knowledge.spec import Config, ResponseMap
from worker.adapters.knowledge.fault import SearchFault

MAX_HITS = 100
MAX_HIT_CHARS = 200_000
DEFAULT_TOP_K = 5

_RECORDS = ("records", "results", "hits", "items", "chunks", "documents", "passages", "list", "data", "result")
_TEXTS = ("content", "text", "answer", "knowledge", "context", "passage", "body", "page_content", "snippet", "summary")
_TITLES = ("title", "name", "document_name", "source_name")
_SCORES = ("score", "similarity", "relevance_score")
_CODES = ("code", "errcode", "error_code")
_MESSAGES = {"message", "msg", "errmsg", "error_msg", "error_message"}
_URLS = ("url", "link", "uri", "source_url")

Body = dict[str, object]


@dataclass(frozen=True)
class Dialect:
    """``body``: what is sent for a question. ``read``: hits out of the decoded answer; raises ``SearchFault``."""

    body: Callable[[Config, str], Body]
    read: Callable[[Config, object], list[Hit]]
    path: str = ""


# ---------------------------------------------------------------- generic


def generic_body(config: Config, query: str) -> Body:
    """``config.request`` with ``{{query}}`` filled in; without one ``{"query": …}``."""
    if not config.request:
        return {"query": query}
    return {key: _filled(value, query) for key, value in config.request.items()}


def read_generic(config: Config, answer: object) -> list[Hit]:
    """Records where ``config.response`` says, else where such services usually have them; one text is one hit."""
    mapping = config.response
    described = _at(answer, mapping.records) if mapping.records else None
    if described is None:  # what was described is believed beside any `error`, its absence is not
        _refuse_told_errors(answer)
    if isinstance(answer, str):
        return _hits([Hit(answer)])
    records = described if mapping.records else _usual_records(answer)
    if records is None:
        return []
    if isinstance(records, str | Mapping):
        records = [records]
    if not isinstance(records, list):
        raise SearchFault(Status.BAD_RESPONSE, "config.response.records names neither a list nor a text")
    return _hits(_generic_hit(record, mapping) for record in records)


def _generic_hit(record: object, mapping: ResponseMap) -> Hit:
    if isinstance(record, str):
        return Hit(record)
    if not isinstance(record, Mapping):
        raise SearchFault(Status.BAD_RESPONSE, "a record is neither a text nor an object")
    content = _at(record, mapping.content) if mapping.content else _first(record, _TEXTS)
    if not isinstance(content, str):
        raise SearchFault(Status.BAD_RESPONSE, "a record has no text: name it in config.response.content")
    title = _at(record, mapping.title) if mapping.title else _first(record, _TITLES)
    score = _at(record, mapping.score) if mapping.score else _first(record, _SCORES)
    url = _at(record, mapping.url) if mapping.url else _first(record, _URLS)
    metadata = _at(record, mapping.metadata) if mapping.metadata else {}
    return Hit(content, _text(title), _number(score), "unknown", _text(url), _object(metadata))


def _usual_records(answer: object) -> object:
    """The list or text of an answer that nobody described. Raises when it holds none."""
    if isinstance(answer, list) or answer is None:
        return answer
    if isinstance(answer, Mapping):
        for key in _RECORDS:
            if key in answer:
                inner = answer[key]
                return _usual_records(inner) if isinstance(inner, Mapping) else inner
        if isinstance(text := _first(answer, _TEXTS), str):
            return text
    raise SearchFault(Status.BAD_RESPONSE, "the answer has no known form: describe it in config.response")


def _filled(value: object, query: str, depth: int = 0) -> object:
    if isinstance(value, str):
        return value.replace("{{query}}", query)
    if isinstance(value, Mapping) and depth < 10:
        return {str(key): _filled(item, query, depth + 1) for key, item in value.items()}
    if isinstance(value, list) and depth < 10:
        return [_filled(item, query, depth + 1) for item in value]
    return value


# ---------------------------------------------------------------- Dify and RAGFlow


def dify_body(config: Config, query: str) -> Body:
    """https://docs.dify.ai: External Knowledge API."""
    request = config.request
    setting = {"top_k": request.get("top_k", DEFAULT_TOP_K), "score_threshold": request.get("score_threshold", 0.0)}
    body: Body = {"knowledge_id": str(request.get("knowledge_id", "")), "query": query, "retrieval_setting": setting}
    if "metadata_condition" in request:
        body["metadata_condition"] = request["metadata_condition"]
    return body


def read_dify(_config: Config, answer: object) -> list[Hit]:
    """``{"records": [{content, score, title, metadata}]}``; errors also come with HTTP 200 and ``error_code``."""
    if isinstance(answer, Mapping) and "error_code" in answer:
        raise dify_fault(answer["error_code"])
    _refuse_told_errors(answer)
    records = answer.get("records") if isinstance(answer, Mapping) else None
    if not isinstance(records, list):
        raise SearchFault(Status.BAD_RESPONSE, "the answer has no list `records`")
    return _hits(_record_hit(record, "content", "title", "score") for record in records)


def dify_fault(code: object) -> SearchFault:
    """Dify's error codes: 1001 and 1002 are about the key, 2001 about the base."""
    if str(code) in ("1001", "1002"):
        return SearchFault(Status.UNAUTHORIZED, f"the service refused our key (error_code {str(code)[:8]})")
    if str(code) == "2001":
        return SearchFault(Status.KB_NOT_FOUND, "the service knows no such knowledge_id (error_code 2001)")
    return SearchFault(Status.BAD_RESPONSE, "the service answered with an error_code of its own")


def ragflow_body(config: Config, query: str) -> Body:
    """RAGFlow's HTTP API ``POST /api/v1/retrieval``; its score blends terms and vectors, so ours is no threshold."""
    known = ("document_ids", "similarity_threshold", "vector_similarity_weight", "rerank_id", "keyword")
    request = config.request
    body: Body = {"question": query, "dataset_ids": request.get("dataset_ids", []), "page": 1}
    body["page_size"] = request.get("top_k", DEFAULT_TOP_K)  # its own `top_k` is the number of candidates
    return body | {name: request[name] for name in known if name in request}


def read_ragflow(_config: Config, answer: object) -> list[Hit]:
    """``{"code": 0, "data": {"chunks": [{content, similarity, document_keyword}]}}``; a fault has another code."""
    if not isinstance(answer, Mapping) or "code" not in answer:
        raise SearchFault(Status.BAD_RESPONSE, "the answer has no `code`")
    if answer["code"] != 0:
        raise _ragflow_fault(answer)
    data = answer.get("data")
    chunks = data.get("chunks") if isinstance(data, Mapping) else [] if data in (None, False) else None
    if not isinstance(chunks, list):
        raise SearchFault(Status.BAD_RESPONSE, "the answer has no list `data.chunks`")
    return _hits(_record_hit(chunk, "content", "document_keyword", "similarity", "blended") for chunk in chunks)


def _ragflow_fault(answer: Mapping[str, object]) -> SearchFault:
    message = str(answer.get("message", "")).lower()
    if answer["code"] in (109, 401, 403) or "api key" in message or "authorization" in message:
        return SearchFault(Status.UNAUTHORIZED, "the service refused our key")
    if "dataset" in message and ("own" in message or "not found" in message or "exist" in message):
        return SearchFault(Status.KB_NOT_FOUND, "the service knows no such dataset for this key")
    return SearchFault(Status.BAD_RESPONSE, "the service answered with a code that is not 0")


DIALECTS: dict[str, Dialect] = {
    "generic": Dialect(generic_body, read_generic),
    "dify": Dialect(dify_body, read_dify, "/retrieval"),
    "ragflow": Dialect(ragflow_body, read_ragflow, "/api/v1/retrieval"),
}


# ---------------------------------------------------------------- reading


def decode(body: bytes, content_type: str) -> object:
    """The answer as JSON value or text. Raises ``BAD_RESPONSE`` for a page made for people, or broken JSON."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind in ("text/html", "application/xhtml+xml") or body.lstrip()[:15].lower().startswith(
        (b"<!doctype", b"<html")
    ):
        raise SearchFault(Status.BAD_RESPONSE, "the service answered with an HTML page: is the endpoint right?")
    if not body.strip():
        return None
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SearchFault(Status.BAD_RESPONSE, "the answer is no UTF-8 text") from error
    if kind in ("text/plain", "text/markdown"):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SearchFault(Status.BAD_RESPONSE, "the answer is no valid JSON") from error


def _refuse_told_errors(answer: object) -> None:
    """A service that says 200 and means an error."""
    if not isinstance(answer, Mapping):
        return
    told = answer.get("success") is False or bool(answer.get("error")) or bool(answer.get("errors"))
    told = told or answer.get("status") in ("error", "fail", "failed")
    coded = any(_is_fault(answer.get(name)) for name in _CODES)
    if told or (coded and _MESSAGES & answer.keys()):
        raise SearchFault(Status.BAD_RESPONSE, "the service reports an error in a successful answer")


def _is_fault(code: object) -> bool:
    """A number, also one written as a text, that does not mean success."""
    if isinstance(code, str) and len(code) < 10 and code.lstrip("-").isdecimal():
        code = int(code)
    return isinstance(code, int) and code not in (0, 200)


def _record_hit(record: object, content: str, title: str, score: str, kind: ScoreKind = "unknown") -> Hit:
    if not isinstance(record, Mapping) or not isinstance(record.get(content), str):
        raise SearchFault(Status.BAD_RESPONSE, f"a record has no text `{content}`")
    metadata = _object(record.get("metadata"))
    url = _text(_first(metadata, _URLS))
    return Hit(str(record[content]), _text(record.get(title)), _number(record.get(score)), kind, url, metadata)


def _hits(found: Sequence[Hit] | Iterator[Hit]) -> list[Hit]:
    hits: list[Hit] = []
    for hit in found:
        if hit.content.strip() and len(hits) < MAX_HITS:
            content = hit.content[:MAX_HIT_CHARS]
            hits.append(Hit(content, hit.title[:1_000], hit.score, hit.score_kind, hit.url[:2_000], hit.metadata))
    return hits


def _at(value: object, path: str) -> object:
    for part in path.split("."):
        if isinstance(value, Mapping):
            value = value.get(part)
        elif isinstance(value, list) and part.isdigit() and int(part) < len(value):
            value = value[int(part)]
        else:
            return None
    return value


def _first(record: Mapping[str, object], names: Sequence[str]) -> object:
    return next((record[name] for name in names if record.get(name) is not None), None)


def _text(value: object) -> str:
    return value if isinstance(value, str) else str(value) if isinstance(value, int | float) else ""


def _number(value: object) -> float | None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if number and value == value and abs(value) < 1e9 else None  # type: ignore[arg-type]  # checked above


def _object(value: object) -> Mapping[str, object]:
    return {str(key): item for key, item in value.items()} if isinstance(value, Mapping) else {}
