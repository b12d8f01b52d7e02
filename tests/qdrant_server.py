"""Qdrant's REST API in front of Qdrant's own engine (``qdrant-edge-py``): no index has its server as a package.

Bodies are checked with the official client's models, and the official client itself fills the collections over HTTP,
so a form that it does not know fails here. Statuses and words of errors are those of the server's source (v1.15):
401 as plain text, 400 and 404 as ``{"status": {"error": …}}``.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from tests.fakes_knowledge import Asked, Said, Service, said, service

KEY = "t0k3n-qdrant"


@dataclass
class Collection:
    """``strict``: filters want a payload index, as in Qdrant Cloud by default."""

    shard: Any
    document: dict[str, Any]
    strict: bool
    indexed: set[str] = field(default_factory=set)


class RefusedError(Exception):
    """An answer that is no success."""

    def __init__(self, status: int, told: str) -> None:
        super().__init__(told)
        self.status = status


@dataclass
class QdrantRest:
    """The server's answers. ``folder`` gets a folder for each collection."""

    folder: Path
    collections: dict[str, Collection] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._engine = import_module("qdrant_edge")
        self._models = import_module("qdrant_client.http.models")

    def answer(self, request: Asked) -> Said:
        """One request."""
        key = request.headers.get("api-key") or request.headers.get("authorization", "").removeprefix("Bearer ")
        if key != KEY:
            told = b"Invalid API key or JWT" if key else b"Must provide an API key or an Authorization bearer token"
            return Said(401, told, "text/plain; charset=utf-8")
        try:
            result = self._routed(request)
        except RefusedError as error:
            return said({"status": {"error": str(error)}, "time": 1e-5}, error.status)
        return said({"result": result, "status": "ok", "time": 1e-5})

    def _routed(self, request: Asked) -> Any:
        path = urlsplit(request.path).path
        match = re.fullmatch(r"/collections/([^/]+)(/.*)?", path)
        if match is None:
            raise RefusedError(404, "no such path")
        name, rest, method = unquote(match.group(1)), match.group(2) or "", request.method
        if (method, rest) == ("PUT", ""):
            return self._create(name, request)
        if (method, rest) == ("GET", "/exists"):
            return {"exists": name in self.collections}
        if name not in self.collections:
            raise RefusedError(404, f"Not found: Collection `{name}` doesn't exist!")
        found = self.collections[name]
        if (method, rest) == ("GET", ""):
            return found.document
        if (method, rest) == ("PUT", "/points"):
            return self._upsert(found, request)
        if (method, rest) == ("PUT", "/index"):
            found.indexed.add(request.json["field_name"])
            return {"operation_id": 1, "status": "completed"}
        if (method, rest) == ("POST", "/points/query"):
            return self._query(found, request)
        raise RefusedError(404, "no such path")

    def _read(self, model: str, request: Asked) -> Any:
        """A body as the official models read it; what they do not know is the server's 400."""
        try:
            return getattr(self._models, model).model_validate(request.json)
        except ValueError as error:
            fault = str(error).splitlines()[0]
            raise RefusedError(400, f"Format error in JSON body: {fault}") from error

    def _create(self, name: str, request: Asked) -> bool:
        asked, edge = self._read("CreateCollection", request), self._engine
        vectors = asked.vectors if isinstance(asked.vectors, dict) else {"": asked.vectors}
        parameters = {
            name: edge.EdgeVectorParams(one.size, getattr(edge.Distance, one.distance.value))
            for name, one in vectors.items()
        }
        shard = edge.EdgeShard.create(str(self.folder / name), edge.EdgeConfig(vectors=parameters))
        shown = {name: {"size": one.size, "distance": one.distance.value} for name, one in vectors.items()}
        document = {
            "status": "green",
            "optimizer_status": "ok",
            "points_count": 0,
            "segments_count": 1,
            "config": {
                "params": {"vectors": shown.get("", shown), "shard_number": 1, "on_disk_payload": True},
                "hnsw_config": {"m": 16, "ef_construct": 100, "full_scan_threshold": 10_000},
                "optimizer_config": {
                    "deleted_threshold": 0.2,
                    "vacuum_min_vector_number": 1000,
                    "default_segment_number": 0,
                    "flush_interval_sec": 5,
                },
            },
            "payload_schema": {},
        }
        strict = bool(asked.strict_mode_config and asked.strict_mode_config.unindexed_filtering_retrieve is False)
        self.collections[name] = Collection(shard, document, strict)
        return True

    def _upsert(self, found: Collection, request: Asked) -> Any:
        edge = self._engine
        points = [edge.Point(p.id, p.vector, p.payload) for p in self._read("PointsList", request).points]
        try:
            found.shard.update(edge.UpdateOperation.upsert_points(points))
        except Exception as error:
            raise RefusedError(400, f"Wrong input: {error}") from error
        return {"operation_id": 0, "status": "completed"}

    def _query(self, found: Collection, request: Asked) -> Any:
        asked, edge = self._read("QueryRequest", request), self._engine
        wanted = edge.QueryRequest(
            limit=asked.limit or 10,
            query=edge.Query.Nearest(asked.query, using=asked.using),
            filter=self._filter(found, asked.filter) if asked.filter else None,
            score_threshold=asked.score_threshold,
            with_payload=asked.with_payload or False,
            with_vector=asked.with_vector or False,
        )
        try:
            points = found.shard.query(wanted)
        except Exception as error:
            raise RefusedError(400, f"Wrong input: {error}") from error
        return {"points": [self._shown(point) for point in points]}

    @staticmethod
    def _shown(point: Any) -> dict[str, Any]:
        vector = point.vector
        if isinstance(vector, dict) and set(vector) == {""}:
            vector = vector[""]
        shown = {"id": point.id, "version": 0, "score": point.score, "payload": point.payload, "vector": vector}
        return {key: value for key, value in shown.items() if value is not None}

    def _filter(self, found: Collection, asked: Any) -> Any:
        return self._engine.Filter(
            must=[self._condition(found, one) for one in asked.must or []],
            should=[self._condition(found, one) for one in asked.should or []] or None,
        )

    def _condition(self, found: Collection, asked: Any) -> Any:
        edge = self._engine
        if isinstance(asked, self._models.Filter):
            return self._filter(found, asked)
        if found.strict and asked.key not in found.indexed:
            told = f'Index required but not found for "{asked.key}" of one of the following types: [keyword]'
            raise RefusedError(
                400, f"Bad request: {told}. Help: Create an index for this key or use a different filter."
            )
        match = asked.match.model_dump() if asked.match else {}
        if isinstance(match.get("value"), bool):  # the engine's Python binding takes True for 1, the server does not
            records, _ = found.shard.scroll(edge.ScrollRequest(limit=1000, with_payload=True))
            return edge.HasIdCondition({one.id for one in records if one.payload.get(asked.key) is match["value"]})
        if "any" in match:
            return edge.FieldCondition(asked.key, match=edge.MatchAny(match["any"]))
        if "value" in match:
            return edge.FieldCondition(asked.key, match=edge.MatchValue(match["value"]))
        limits = asked.range.model_dump(exclude_none=True)
        return edge.FieldCondition(asked.key, range=edge.RangeFloat(**limits))


@contextmanager
def qdrant_rest(folder: Path) -> Iterator[tuple[Service, Any]]:
    """The running stand-in and the official client that talks to it. Skips when the engine is not installed."""
    for package in ("qdrant_edge", "qdrant_client"):
        pytest.importorskip(package, reason=f"no {package} here: pip install qdrant-edge-py qdrant-client")
    rest = QdrantRest(folder)
    with service(rest.answer) as there:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # a key without TLS: this is loopback
            client = import_module("qdrant_client").QdrantClient(
                url=there.url, api_key=KEY, check_compatibility=False, timeout=30
            )
        try:
            yield there, client
        finally:
            client.close()
            for found in rest.collections.values():
                found.shard.close()
