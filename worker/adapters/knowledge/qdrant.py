"""Qdrant as a vector store: a server over HTTP (no client library), or a local folder; must not judge hits.

REST: https://api.qdrant.tech. A ``Cosine`` collection returns the similarity itself; for every other metric the
vectors are asked for and the cosine is computed here, since their scores have other scales and signs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from tasks.knowledge.found import Hit, Status
from tasks.knowledge.spec import VdbParams
from worker.adapters.knowledge.dialects import decode
from worker.adapters.knowledge.fault import SearchFault, fault_of_status
from worker.adapters.knowledge.vectors import (
    Place,
    candidates,
    check_dimension,
    check_metric,
    content_of,
    cosine,
    missing_extra,
    not_found,
    text_of,
)
from worker.outbound import Outbound

METRICS = {"cosine": "cosine", "euclid": "l2", "dot": "dot", "manhattan": "manhattan"}
_FIELDS = {"id", "score", "payload", "vector"}


@dataclass(frozen=True)
class _Index:
    size: int
    metric: str
    using: str


@dataclass(frozen=True)
class QdrantServer:
    """``VectorStore`` over Qdrant's REST API."""

    outbound: Outbound

    def search(self, vector: Sequence[float], params: VdbParams, place: Place) -> list[Hit]:
        """See :class:`VectorStore`."""
        path = f"/collections/{quote(params.index_name, safe='')}"
        index = _index_in(self._result("GET", path, {}, params, place), params)
        _check(index, params, vector)
        result = self._result("POST", f"{path}/points/query", _query(vector, params, index), params, place)
        points = result.get("points") if isinstance(result, Mapping) else None
        if not isinstance(points, list):
            raise SearchFault(Status.BAD_RESPONSE, "Qdrant's answer has no result.points")
        return [_hit(point, vector, params, index) for point in points if isinstance(point, Mapping)]

    def _result(self, method: str, path: str, body: Mapping[str, object], params: VdbParams, place: Place) -> Any:
        content = json.dumps(body).encode() if body else b""
        headers = {"Content-Type": "application/json", **place.headers}
        url = place.endpoint.rstrip("/") + path
        reply = self.outbound.send(method, url, headers, content, place.deadline)
        if reply.status == 404:
            raise not_found(params)
        if reply.status == 400:  # dimension and vector name were checked before
            told = "in strict mode each field of vdb_params.filter needs a payload index"
            raise SearchFault(Status.MISCONFIGURED, f"Qdrant refused the query (HTTP 400): {told}")
        fault = fault_of_status(reply.status, urlsplit(url).hostname or "", reply.retry_after)
        if fault:
            raise fault
        answer = decode(reply.body, reply.content_type)
        if not isinstance(answer, Mapping) or "result" not in answer:
            raise SearchFault(Status.BAD_RESPONSE, "this is no answer of Qdrant: is the endpoint right?")
        return answer["result"]


class QdrantFolder:
    """``VectorStore`` over Qdrant's local mode (extra ``qdrant``): ``file:///folder``, one process at a time."""

    def search(self, vector: Sequence[float], params: VdbParams, place: Place) -> list[Hit]:
        """See :class:`VectorStore`."""
        with _opened(unquote(urlsplit(place.endpoint).path)) as client:
            if not client.collection_exists(params.index_name):
                raise not_found(params)
            info = client.get_collection(params.index_name)
            index = _index_in(info.model_dump(mode="json"), params)
            _check(index, params, vector)
            wanted = _query(vector, params, index)
            models = import_module("qdrant_client.models")
            chosen = models.Filter.model_validate(wanted["filter"]) if "filter" in wanted else None
            found = client.query_points(
                params.index_name,
                query=list(vector),
                using=index.using or None,
                query_filter=chosen,
                limit=wanted["limit"],
                with_payload=True,
                with_vectors=wanted["with_vector"],
            )
            points = [point.model_dump(mode="json", include=_FIELDS) for point in found.points]
        return [_hit(point, vector, params, index) for point in points]


@contextmanager
def _opened(folder: str) -> Iterator[Any]:
    try:
        library = import_module("qdrant_client")
    except ImportError as error:
        raise missing_extra("qdrant") from error
    try:
        client = library.QdrantClient(path=folder)
    except RuntimeError as error:  # portalocker: another process has it
        raise SearchFault(Status.UNAVAILABLE, "the Qdrant folder is in use by another process", again=True) from error
    except (OSError, ValueError) as error:
        raise SearchFault(Status.UNAVAILABLE, "the Qdrant folder cannot be opened: check config.endpoint") from error
    try:
        yield client
    finally:
        client.close()


def _index_in(info: object, params: VdbParams) -> _Index:
    """Size and metric of the vector that ``columns.embedding`` names, or of the only one."""
    vectors: Any = info
    for key in ("config", "params", "vectors"):
        vectors = vectors.get(key) if isinstance(vectors, Mapping) else None
    using = ""
    if isinstance(vectors, Mapping) and "size" not in vectors:
        using = params.columns.embedding
        vectors = vectors.get(using)
    if not isinstance(vectors, Mapping) or not isinstance(vectors.get("size"), int):
        raise SearchFault(
            Status.MISCONFIGURED,
            f"collection {params.index_name} has no vector {params.columns.embedding}: name it in columns.embedding",
        )
    metric = METRICS.get(str(vectors.get("distance", "")).lower(), "")
    return _Index(vectors["size"], metric, using)


def _check(index: _Index, params: VdbParams, vector: Sequence[float]) -> None:
    check_dimension(params, index.size, vector)
    check_metric(params, index.metric)


def _query(vector: Sequence[float], params: VdbParams, index: _Index) -> dict[str, Any]:
    is_cosine = index.metric == "cosine"
    body: dict[str, Any] = {
        "query": list(vector),
        "limit": candidates(params, index.metric),
        "with_payload": True,
        "with_vector": not is_cosine,
    }
    if index.using:
        body["using"] = index.using
    if params.filter:
        body["filter"] = {"must": [_condition(key, value) for key, value in params.filter.items()]}
    return body


def _condition(key: str, value: object) -> dict[str, Any]:
    """``match`` knows texts, whole numbers and booleans, its ``any`` only lists of one of the first two."""
    if isinstance(value, list):
        kinds = {type(one) for one in value}
        if len(kinds) == 1 and kinds <= {str, int}:
            return {"key": key, "match": {"any": value}}
        return {"should": [_condition(key, one) for one in value]}
    if isinstance(value, float):
        return {"key": key, "range": {"gte": value, "lte": value}}
    return {"key": key, "match": {"value": value}}


def _hit(point: Mapping[str, Any], vector: Sequence[float], params: VdbParams, index: _Index) -> Hit:
    payload = point.get("payload") or {}
    score = point.get("score")
    if index.metric != "cosine":
        stored = point.get("vector")
        stored = stored.get(index.using) if isinstance(stored, Mapping) else stored
        if not isinstance(stored, list) or len(stored) != len(vector):
            raise SearchFault(Status.BAD_RESPONSE, "Qdrant sent no vector with a point")
        score = cosine(vector, stored)
    if not isinstance(score, int | float):
        raise SearchFault(Status.BAD_RESPONSE, "Qdrant sent no score with a point")
    columns = params.columns
    metadata = payload.get(columns.metadata) if columns.metadata else {}
    return Hit(
        content_of(payload, params),
        text_of(payload, columns.title),
        float(score),
        "cosine",
        text_of(payload, columns.url),
        metadata if isinstance(metadata, Mapping) else {},
    )
