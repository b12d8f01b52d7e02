"""Memory and fallbacks: who is asked instead, in which order, for which statuses; and building sources from specs."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from tasks.knowledge.found import Found, Status
from tests.fakes_knowledge import ScriptedSource, TableEmbeddings, environment, hits, spec
from tests.fakes_model import StillClock
from worker.adapters.knowledge.calling import searched, with_tries
from worker.adapters.knowledge.chain import MAX_REMEMBERED, ChainedSource, RememberingSource
from worker.adapters.knowledge.fault import SearchFault
from worker.adapters.knowledge.shelf import AbsentSource, SourceShelf
from worker.adapters.knowledge.stores import EmbeddingService, VectorSources, engine_of
from worker.outbound import AllowedHosts, Outbound

FAULTS = [status for status in Status if not status.answered]


def chain(first: Found, *others: Found, **policy: Any) -> tuple[ChainedSource, dict[str, ScriptedSource]]:
    sources = {f"f{number}": ScriptedSource([found]) for number, found in enumerate(others, 1)}
    its_spec = spec(fallback=list(sources), **policy)
    return ChainedSource(its_spec, ScriptedSource([first]), sources.__getitem__, StillClock()), sources


@pytest.mark.parametrize("status", FAULTS)
def test_every_fault_leads_to_the_fallback(status: Status) -> None:
    source, others = chain(Found(status, detail="why"), hits("替补"))

    found = source.search("问")

    assert (found.status, found.answered_by) == (Status.HIT, "f1")
    assert [(a.source, a.status) for a in found.attempts] == [("kb", status), ("f1", Status.HIT)]
    assert others["f1"].asked == ["问"]


def test_a_hit_asks_nobody_else_and_tells_no_attempts() -> None:
    source, others = chain(hits("甲"), hits("替补"))

    assert source.search("问").attempts == ()
    assert others["f1"].asked == []


@pytest.mark.parametrize(("on_zero", "status"), [("empty", Status.ZERO_HIT), ("fallback", Status.HIT)])
def test_no_hit_is_an_answer_unless_the_file_says_otherwise(on_zero: str, status: Status) -> None:
    source, _ = chain(Found(Status.ZERO_HIT), hits("替补"), on_zero=on_zero)

    assert source.search("问").status == status


def test_on_error_empty_asks_nobody_else() -> None:
    source, others = chain(Found(Status.TIMEOUT), hits("替补"), on_error="empty")

    assert source.search("问").status == Status.TIMEOUT
    assert others["f1"].asked == []


def test_fallbacks_are_asked_in_order_until_one_answers() -> None:
    source, others = chain(Found(Status.TIMEOUT), Found(Status.UNAVAILABLE), hits("二"), hits("三"))

    found = source.search("问")

    assert (found.answered_by, len(found.attempts)) == ("f2", 3)
    assert others["f3"].asked == []


def test_when_nobody_answers_the_first_fault_is_told() -> None:
    source, _ = chain(Found(Status.UNAUTHORIZED, detail="key"), Found(Status.TIMEOUT))

    found = source.search("问")

    assert (found.status, found.detail, found.hits) == (Status.UNAUTHORIZED, "key", ())
    assert [a.status for a in found.attempts] == [Status.UNAUTHORIZED, Status.TIMEOUT]


def test_fallbacks_share_the_callers_time() -> None:
    clock = StillClock()

    class Slow(ScriptedSource):
        def search(self, query: str, *, timeout_s: float | None = None) -> Found:
            clock.sleep(6)
            return super().search(query, timeout_s=timeout_s)

    other = ScriptedSource([hits("替补")])
    source = ChainedSource(spec(fallback=["f1"]), Slow([Found(Status.TIMEOUT)]), lambda _: other, clock)

    assert source.search("问", timeout_s=10).status == Status.HIT
    assert other.times == [4.0]
    assert source.search("问", timeout_s=6).status == Status.TIMEOUT
    assert len(other.times) == 1


# ---------------------------------------------------------------- memory


def test_an_answer_is_given_again_until_its_time_is_over() -> None:
    clock, inner = StillClock(), ScriptedSource([hits("甲")])
    source = RememberingSource(inner, 60, clock)

    assert source.search("问") == source.search("问") or source.search("问").ms == 0
    assert len(inner.asked) == 1
    clock.sleep(61)
    source.search("问")
    source.search("另问")
    assert inner.asked == ["问", "问", "另问"]


def test_a_fault_is_not_remembered() -> None:
    inner = ScriptedSource([Found(Status.TIMEOUT), hits("甲")])
    source = RememberingSource(inner, 60, StillClock())

    assert [source.search("问").status, source.search("问").status] == [Status.TIMEOUT, Status.HIT]


def test_the_memory_is_bounded() -> None:
    inner = ScriptedSource([hits("甲")])
    source = RememberingSource(inner, 60, StillClock())

    for number in range(MAX_REMEMBERED + 1):
        source.search(f"问{number}")
    source.search("问0")

    assert inner.asked.count("问0") == 2


# ---------------------------------------------------------------- never an exception


def test_an_error_that_nobody_foresaw_is_a_status_and_names_no_text() -> None:
    def work() -> list[Any]:
        raise KeyError("secret text of a document")

    found = searched(work, "kb", StillClock())

    assert (found.status, found.detail) == (Status.BAD_RESPONSE, "unexpected KeyError")


def test_waits_between_tries_grow_and_end_before_the_deadline() -> None:
    clock, starts = StillClock(), []

    def attempt() -> str:
        starts.append(clock.monotonic())
        raise SearchFault(Status.UNAVAILABLE, "down", again=True)

    with pytest.raises(SearchFault):
        with_tries(attempt, retries=5, deadline=clock.monotonic() + 2, clock=clock)

    waits = [later - earlier for earlier, later in pairwise(starts)]
    assert 2 <= len(starts) <= 5
    assert waits == sorted(waits)
    assert starts[-1] < starts[0] + 2


# ---------------------------------------------------------------- building


def shelf(*specs: Any, base_url: str = "") -> SourceShelf:
    clock = StillClock()
    outbound = Outbound(AllowedHosts(), clock.monotonic)
    vectors = VectorSources(outbound, environment(), clock, EmbeddingService(base_url, "", outbound), TableEmbeddings())
    return SourceShelf(specs, outbound, environment(), clock, vectors)


VDB = {"index_name": "a", "top_k": 1, "threshold": 0.5, "embedding_model": "text-embedding-3-small"}


def test_a_source_nobody_has_says_so() -> None:
    found = shelf().source("none").search("x")

    assert (found.status, "none" in found.detail) == (Status.MISCONFIGURED, True)


def test_a_model_served_nowhere_is_told_by_the_setting_that_is_missing() -> None:
    found = shelf(spec(vdb_params=VDB)).source("kb").search("x")

    assert (found.status, found.detail) == (
        Status.MISCONFIGURED,
        "KBW_EMBEDDING_BASE_URL is not set: where is text-embedding-3-small served?",
    )


def test_an_adapter_of_another_package_that_is_absent_says_so() -> None:
    found = shelf(spec(adapter="weknora_mcp", request={"kb_id": "库"})).source("kb").search("x")

    assert (found.status, "weknora_mcp" in found.detail) == (Status.MISCONFIGURED, True)
    assert AbsentSource("x", "y").search("z").answered_by == "x"


@pytest.mark.parametrize(
    ("endpoint", "engine"),
    [
        ("https://q.example.com:6333", "qdrant"),
        ("file:///data/qdrant", "qdrant"),
        ("file:///data/kb.db", "sqlite_vec"),
        ("postgresql://u@h/db", "pgvector"),
    ],
)
def test_the_endpoints_form_tells_the_kind_of_store(endpoint: str, engine: str) -> None:
    assert engine_of(endpoint) == engine
