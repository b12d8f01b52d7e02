"""``kbw material eval`` before the stand-in: the three checks of seed 000 §六 as figures and a picture."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.weknora_server import RETRIEVE_KEY, Base, WeknoraServer
from worker.ops.failure import OperationFailedError
from worker.ops.material_eval import evaluate_file
from worker.settings import Settings

pytestmark = pytest.mark.enable_socket
KB = "MCN极致事件素材库"
NOODLES = "找一道深夜吃很治愈的面"


@pytest.fixture
def server() -> Iterator[WeknoraServer]:
    with WeknoraServer() as found:
        events = [
            {
                "standard_question": f"找一条 摊主{n} 预期反转 夜市{n} 的 钩子 型事件素材",
                "answers": [f"编号：{n}-1\n类别：事件\n内容含义：第{n}张事件卡的一整句内容"],
            }
            for n in range(8)
        ]
        crowd = [
            {"standard_question": f"{NOODLES}吗{n}", "answers": [f"编号：9-{n}\n类别：事件\n内容含义：挤占"]}
            for n in range(3)
        ]
        dish = {"standard_question": f"{NOODLES}和热汤一碗", "answers": ["编号：77-1\n类别：菜品\n内容含义：葱油拌面"]}
        found.add(Base(KB), *events, *crowd, dish)
        yield found


def settings(server: WeknoraServer) -> Settings:
    return Settings.load({"KBW_WEKNORA_URL": server.url, "KBW_WEKNORA_API_KEY": RETRIEVE_KEY})


def questions(tmp_path: Path, *rows: object) -> Path:
    path = tmp_path / "questions.json"
    path.write_text(json.dumps({"questions": list(rows)}, ensure_ascii=False), "utf-8")
    return path


def test_the_three_checks(server: WeknoraServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known = [
        {"question": f"找一条 摊主{n} 预期反转 夜市{n} 的 钩子 型事件素材", "kind": "事件", "expected": [f"{n}-1"]}
        for n in range(8)
    ]
    file = questions(tmp_path, *known, {"question": NOODLES, "kind": "菜品"}, "一句话让所有人都沉默")
    assert evaluate_file(file, settings(server), out=tmp_path / "out", as_json=True) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["asked"], report["zero_hits"], report["zero_rate"]) == (10, 1, 0.1)
    assert report["crowded_out"] == 1, "the dish is there, but behind three event cards"
    assert report["crowding"]["菜品"] == {"事件": 3}
    assert (report["enough"]["judged"], report["enough"]["enough"]) == (9, 8)
    assert all(call.document["match_count"] == 10 for call in server.searches())
    [image] = (tmp_path / "out").glob("*.svg")
    ElementTree.fromstring(image.read_text("utf-8"))
    for path in (tmp_path / "out").iterdir():
        assert "一整句内容" not in path.read_text("utf-8")


def test_nodes_are_asked_by_their_mirror_question(server: WeknoraServer, tmp_path: Path) -> None:
    node = {"gapObject": "摊主1", "breakMethod": "预期反转", "anchor": "夜市1", "function": "钩子"}
    file = questions(tmp_path, *[node] * 10)
    assert evaluate_file(file, settings(server), out=tmp_path / "out", as_json=False) == 0
    assert server.searches()[0].document["query_text"] == "找一条 摊主1 预期反转 夜市1 的 钩子 型事件素材"


def test_fewer_than_ten_questions_and_a_refused_one_are_told(server: WeknoraServer, tmp_path: Path) -> None:
    with pytest.raises(OperationFailedError, match="at least 10"):
        evaluate_file(questions(tmp_path, NOODLES), settings(server), out=tmp_path, as_json=False)
    bad = {"gapObject": "摊主1", "breakMethod": "预期反转", "anchor": "反转", "function": "钩子"}
    with pytest.raises(OperationFailedError, match="#1: the question would be refused"):
        evaluate_file(questions(tmp_path, *[bad] * 10), settings(server), out=tmp_path, as_json=False)


def test_a_server_in_trouble_is_no_zero_hit(server: WeknoraServer, tmp_path: Path) -> None:
    with server.trapped(status=500):
        assert evaluate_file(questions(tmp_path, *["问题"] * 10), settings(server), out=tmp_path, as_json=False) == 1
