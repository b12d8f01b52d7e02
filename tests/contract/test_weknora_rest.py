"""WeKnora over REST against the stand-in: every way it can answer is one status, within the time given."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import pytest

from tasks.knowledge.found import Status
from tests.fakes_model import StillClock
from tests.weknora_server import RETRIEVE_KEY, Base, WeknoraServer
from worker.adapters.weknora.absence import RememberedAbsence
from worker.adapters.weknora.http import WeknoraWire
from worker.adapters.weknora.rest import WeknoraRest
from worker.clock import SystemClock
from worker.outbound import AllowedHosts, Outbound

pytestmark = pytest.mark.enable_socket
KB = "MCN极致事件素材库"
CARD = {
    "standard_question": "被当场刁难的人用一连串专业细节把对方顶回去",
    "answers": ["编号：28325-3\n内容含义：被刁难的摊主用专业细节反击", "第二份答案"],
}
ASKED = "被当场刁难的人，用一连串专业细节一步步把对方顶回去"


@pytest.fixture
def server() -> Iterator[WeknoraServer]:
    with WeknoraServer() as found:
        found.add(Base(KB), CARD)
        yield found


def client(server: WeknoraServer, key: str = RETRIEVE_KEY, **options: Any) -> WeknoraRest:
    return at(server.url, key, **options)


def at(url: str, key: str = RETRIEVE_KEY, **options: Any) -> WeknoraRest:
    clock = SystemClock()
    wire = WeknoraWire(url, key, Outbound(AllowedHosts(("127.0.0.1",)), clock.monotonic))
    return WeknoraRest(wire, clock, **options)


def test_a_hit_gives_the_first_answer_and_no_other_copy_of_the_card(server: WeknoraServer) -> None:
    found = client(server).find(KB, ASKED, timeout=20)
    assert found.status is Status.HIT
    assert [hit.content for hit in found.hits] == [CARD["answers"][0]]
    assert CARD["standard_question"] not in str(asdict(found))


def test_all_answers_are_read_only_when_the_base_wants_it(server: WeknoraServer) -> None:
    found = client(server, answers="all").find(KB, ASKED, timeout=20)
    assert found.hits[0].content == "\n\n".join(CARD["answers"])


def test_the_request_names_count_and_threshold_and_no_keyword_threshold_nor_filter(server: WeknoraServer) -> None:
    client(server).find(KB, ASKED, timeout=20)
    request = server.searches()[0].document
    assert (request["match_count"], request["vector_threshold"]) == (3, 0.5)
    assert request["disable_keywords_match"] is True
    assert not {"keyword_threshold", "knowledge_ids", "tag_ids", "metadata"} & set(request)


def test_null_data_is_no_hit_and_no_second_try(server: WeknoraServer) -> None:
    found = client(server).find(KB, "一句话让所有人都沉默了", timeout=20)
    assert found.status is Status.ZERO_HIT
    assert len(server.searches()) == 1


@pytest.mark.parametrize(
    ("traps", "status"),
    [
        ({"status": 500}, Status.UNAVAILABLE),
        ({"status": 503}, Status.UNAVAILABLE),
        ({"html": True}, Status.BAD_RESPONSE),
        ({"huge_bytes": 10_000_000}, Status.BAD_RESPONSE),
        ({"redirect": "http://169.254.169.254/latest"}, Status.BAD_RESPONSE),
        ({"search_fails": True}, Status.UNAVAILABLE),
    ],
)
def test_a_service_that_fails_or_lies_is_a_status(server: WeknoraServer, traps: dict[str, Any], status: Status) -> None:
    with server.trapped(**traps):
        found = client(server).find(KB, ASKED, timeout=20)  # far off: a busy machine must not make it a TIMEOUT
    assert found.status is status


def test_a_service_that_hangs_is_left_at_the_deadline(server: WeknoraServer) -> None:
    started = time.monotonic()
    with server.trapped(hang_s=120.0):
        found = client(server).find(KB, ASKED, timeout=1.0)
    assert found.status is Status.TIMEOUT
    assert time.monotonic() - started < 60


def test_a_server_that_is_not_there(server: WeknoraServer) -> None:
    found = at("http://127.0.0.1:9/api/v1").find(KB, ASKED, timeout=2)
    assert found.status is Status.UNAVAILABLE


def test_a_wrong_key_and_a_missing_base_are_told_apart(server: WeknoraServer) -> None:
    refused = client(server, key="sk-wrong-1234").find(KB, ASKED, timeout=20)
    missing = client(server).find("没有的库", ASKED, timeout=20)
    assert (refused.status, missing.status) == (Status.UNAUTHORIZED, Status.KB_NOT_FOUND)
    assert "sk-wrong" not in refused.detail


def test_a_missing_base_is_remembered_for_a_minute(server: WeknoraServer) -> None:
    clock = StillClock()
    source = RememberedAbsence(client(server), clock)
    source.find("没有的库", ASKED, timeout=20)
    asked = len(server.calls)
    assert source.find("没有的库", ASKED, timeout=20).status is Status.KB_NOT_FOUND
    assert len(server.calls) == asked
    server.add(Base("没有的库"), CARD)
    clock.sleep(60.5)
    assert source.find("没有的库", ASKED, timeout=20).status is Status.HIT


def test_two_bases_of_one_name_are_ambiguous_but_an_exact_name_wins(server: WeknoraServer) -> None:
    server.add(Base("Cards"), CARD)
    server.add(Base("cards"))
    assert client(server).find("Cards", ASKED, timeout=20).status is Status.HIT
    assert client(server).find("CARDS", ASKED, timeout=20).status is Status.MISCONFIGURED


def test_a_base_that_was_made_anew_is_found_under_its_new_id(server: WeknoraServer) -> None:
    rest = client(server)
    assert rest.find(KB, ASKED, timeout=20).status is Status.HIT
    server.bases.clear()
    server.add(Base(KB), CARD)
    assert rest.find(KB, ASKED, timeout=20).status is Status.HIT


def test_an_old_server_is_asked_by_get(server: WeknoraServer) -> None:
    with server.trapped(old_search=True):
        assert client(server).find(KB, ASKED, timeout=20).status is Status.HIT


def test_hits_without_answers_are_no_cards(server: WeknoraServer) -> None:
    base = server.add(Base("空卡库"), {"standard_question": CARD["standard_question"], "answers": [""]})
    assert client(server).find(base.id, ASKED, timeout=20).status is Status.ZERO_HIT


def test_a_passage_of_a_document_is_no_card(server: WeknoraServer) -> None:
    base = server.add(Base("文档库", kind="document"), CARD)
    assert client(server).find(base.id, ASKED, timeout=20).status is Status.ZERO_HIT
