"""``kbw knowledge`` as an operator types it, and the two files as a worker reads them, against services on loopback."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tasks.knowledge.found import Status
from tasks.stages.mounting import gather
from tests.fakes_knowledge import Asked, Said, said, service, silent_service
from tests.weknora_server import RETRIEVE_KEY, Base, WeknoraServer
from worker.bootstrap_knowledge import KnowledgeShop
from worker.cli import main
from worker.clock import SystemClock
from worker.counting import counted_mounts
from worker.ops.doctor import AREAS
from worker.ops.knowledge import calibration
from worker.settings import Settings, SettingsError

SOURCE = """\
  - id: {id}
    provider_type: SEMANTIC_API
    config:
      endpoint: {url}
      method: POST
      timeout: 10
      retry: 0
      headers: {{Authorization: "Bearer {{{{env.KB_TOKEN}}}}"}}
      {more}
    injection: {{target_variable: context_knowledge, max_tokens: 200, format: markdown}}
"""

Kbw = Callable[..., Result]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Write the two files and point the settings at them."""
    for name in ("KBW_CONFIG", "KB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("KBW_KNOWLEDGE_ALLOWED_HOSTS", "127.0.0.1")

    def write(knowledge: str, pipelines: str = "pipelines: {}\n") -> None:
        for name, text in {"KNOWLEDGE": knowledge, "PIPELINES": pipelines}.items():
            path = tmp_path / f"{name.lower()}.yaml"
            path.write_text(text, encoding="utf-8")
            monkeypatch.setenv(f"KBW_{name}_FILE", str(path))

    return write


def source(source_id: str, url: str, more: str = "") -> str:
    return SOURCE.format(id=source_id, url=url, more=more)


def kbw(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["knowledge", *arguments], catch_exceptions=False)


# ---------------------------------------------------------------- validate


def test_validate_tells_every_finding_and_fails_on_an_error(files: Any, tmp_path: Path) -> None:
    files("knowledge:\n" + source("a", "http://kb.example.com").replace("{{env.KB_TOKEN}}", "sk-123456"))

    told = kbw("validate")
    as_json = json.loads(kbw("validate", "--json").output)

    assert told.exit_code == 1
    assert "LITERAL_SECRET" in told.output
    assert "→" in told.output
    assert "sk-123456" not in told.output
    assert not as_json["valid"]
    assert {finding["code"] for finding in as_json["findings"]} == {"LITERAL_SECRET", "PLAIN_HTTP"}
    assert all(finding["line"] > 0 and finding["cure"] for finding in as_json["findings"])


def test_validate_takes_another_file_and_warnings_are_no_failure(files: Any, tmp_path: Path) -> None:
    files("knowledge: []\n")
    other = tmp_path / "other.yaml"
    other.write_text("knowledge:\n" + source("a", "http://kb.example.com"), encoding="utf-8")

    told = kbw("validate", str(other))

    assert told.exit_code == 0
    assert "1 source(s), 0 error(s), 1 warning(s)" in told.output


@pytest.mark.parametrize("content", [b"\xff\xfe", None])
def test_a_file_that_cannot_be_read_is_one_line_and_exit_1(files: Any, tmp_path: Path, content: bytes | None) -> None:
    files("knowledge: []\n")
    path = tmp_path / "x.yaml"
    if content is not None:
        path.write_bytes(content)

    told = kbw("validate", str(path))

    assert told.exit_code == 1
    assert "x.yaml" in told.stderr
    assert "Traceback" not in told.output


# ---------------------------------------------------------------- probe and search


def test_probe_names_a_missing_variable_then_reaches_the_service(files: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with service(said({"answer": "甲"})) as there:
        files("knowledge:\n" + source("a", there.url))
        without = kbw("probe")
        monkeypatch.setenv("KB_TOKEN", "s3cr3t-value")
        with_it = kbw("probe", "a", "--json")

    assert (without.exit_code, with_it.exit_code) == (1, 0)
    assert "KB_TOKEN is not set" in without.output
    assert json.loads(with_it.output)["a"]["status"] == "HIT"
    assert there.asked[0].headers["authorization"] == "Bearer s3cr3t-value"


def test_probe_tells_about_a_source_itself_not_its_fallback(files: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KB_TOKEN", "s3cr3t-value")
    with service(said({"answer": "甲"})) as well:
        files("knowledge:\n" + source("a", "http://127.0.0.1:1", "fallback: [b]") + source("b", well.url))
        probed = json.loads(kbw("probe", "--json").output)
        found = json.loads(kbw("search", "a", "问", "--json").output)

    assert {name: one["status"] for name, one in probed.items()} == {"a": "UNAVAILABLE", "b": "HIT"}
    assert (found["status"], found["answeredBy"]) == ("HIT", "b")
    assert [attempt["status"] for attempt in found["attempts"]] == ["UNAVAILABLE", "HIT"]


def test_search_shows_hits_and_what_would_stand_in_a_prompt(files: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KB_TOKEN", "s3cr3t-value")

    def echo(request: Asked) -> Said:
        return said(
            {"records": [{"content": f"{request.headers['authorization']} " + "一句话。" * 200, "title": "题"}]}
        )

    with service(echo) as there:
        files("knowledge:\n" + source("a", there.url))
        told, found = kbw("search", "a", "问"), json.loads(kbw("search", "a", "问", "--json").output)

    assert told.exit_code == 0
    assert "cut" in told.output
    assert "s3cr3t" not in told.output + json.dumps(found)
    assert found["injected"]["text"].startswith("### 外部资料：a")
    assert found["injected"]["tokens"] <= 200


def test_an_unknown_id_names_those_there_are(files: Any) -> None:
    files("knowledge:\n" + source("a", "http://127.0.0.1:1"))

    assert "there are: a" in kbw("search", "b", "x").stderr


# ---------------------------------------------------------------- calibrate


def test_calibrate_finds_the_gap_between_right_and_wrong_hits(
    files: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KB_TOKEN", "s3cr3t-value")
    scores = {"问一": 1.0, "问二": 0.58}

    def answer(request: Asked) -> Said:
        query = request.json["query"]
        right = [{"content": f"答案 {query}", "score": scores[query]}] if query in scores else []
        return said({"records": [*right, {"content": "无关", "score": 0.31}, {"content": "无关", "score": 0.22}]})

    questions = tmp_path / "q.yaml"
    questions.write_text(
        "- {question: 问一, expected: 答案 问一}\n- {question: 问二, expected: 答案 问二}\n- {question: 别的}\n",
        "utf-8",
    )
    with service(answer) as there:
        files("knowledge:\n" + source("a", there.url))
        report = json.loads(kbw("calibrate", "a", "--questions", str(questions), "--json").output)
        table = kbw("calibrate", "a", "--questions", str(questions))

    assert report["separates"]
    assert 0.31 < report["threshold"] < 0.58
    assert (report["right"]["count"], report["wrong"]["count"]) == (2, 6)
    assert (report["keepsRight"], report["keepsWrong"]) == (1.0, 0.0)
    assert (table.exit_code, "100% of the right hits" in table.output) == (0, True)
    rows = [line.split()[:3] for line in table.output.splitlines()[1:] if line[:1].isdigit()]
    assert rows == [["0.20", "0", "3"], ["0.30", "0", "3"], ["0.55", "1", "0"], ["0.95", "1", "0"]]


@pytest.mark.parametrize(
    ("right", "wrong", "low", "high", "separates"),
    [
        ([0.9, 0.95], [0.85, 0.84], 0.85, 0.9, True),
        ([0.5, 0.6, 0.7], [0.1, 0.65], 0.1, 0.5, False),
        ([0.5], [], -0.1, 0.5, True),
        ([0.60582], [], 0.6, 0.60582, True),
        ([0.60582], [0.6055], 0.6055, 0.60582, True),
        ([0.90751], [0.90742], 0.90742, 0.90751, True),
    ],
)
def test_the_threshold_lies_between(
    right: list[float], wrong: list[float], low: float, high: float, separates: bool
) -> None:
    report = calibration(right, wrong)

    assert low < float(str(report["threshold"])) <= high
    assert report["separates"] is separates


def test_without_a_right_hit_there_is_no_threshold() -> None:
    assert calibration([], [0.5])["threshold"] is None


@pytest.mark.parametrize("text", ["", "[]", "- 1", "- {question: ''}", "{", "- {question: a, expected: [x]}"])
def test_questions_that_are_none_are_named(files: Any, tmp_path: Path, text: str) -> None:
    files("knowledge:\n" + source("a", "http://127.0.0.1:1"))
    (tmp_path / "q.yaml").write_text(text)

    told = kbw("calibrate", "a", "--questions", str(tmp_path / "q.yaml"))

    assert (told.exit_code, "q.yaml" in told.stderr) == (1, True)


# ---------------------------------------------------------------- as a worker reads them

MOUNTED = "pipelines: {kb_query: {answer: {knowledge_ref: [a]}}}\n"


def shop() -> KnowledgeShop:
    return KnowledgeShop(Settings.load(), SystemClock())


def test_the_shipped_files_are_valid_and_mount_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KBW_KNOWLEDGE_FILE", "KBW_PIPELINES_FILE", "KBW_CONFIG_DIR", "KBW_CONFIG"):
        monkeypatch.delenv(name, raising=False)

    assert shop().files.findings == []
    assert not shop().mounts.nodes


def test_a_mounted_service_is_asked_and_its_hits_placed(files: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KB_TOKEN", "s3cr3t-value")
    with service(said({"answer": "外部甲"})) as there:
        files("knowledge:\n" + source("a", there.url), MOUNTED)
        view = gather("kb_query", "问", shop().mounts, seconds_left=60)

    assert view.at("answer").variables["context_knowledge"] == "### 外部资料：a\n\n#### 1.\n> 外部甲"


def test_a_missing_variable_stops_no_start_and_is_told_at_the_call(files: Any) -> None:
    files("knowledge:\n" + source("a", "http://127.0.0.1:1"), MOUNTED)

    use = gather("kb_query", "问", shop().mounts, seconds_left=60).at("answer").sources[0]

    assert (use.status, "KB_TOKEN" in use.detail) == (Status.MISCONFIGURED, True)


def test_a_hung_service_leaves_half_of_the_jobs_time(files: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KB_TOKEN", "s3cr3t-value")
    clock = SystemClock()
    with silent_service() as port:
        files("knowledge:\n" + source("a", f"http://127.0.0.1:{port}").replace("timeout: 10", "timeout: 60"), MOUNTED)
        mounts = shop().mounts
        started = clock.monotonic()
        use = gather("kb_query", "问", mounts, seconds_left=4).at("answer").sources[0]

    assert use.status == Status.TIMEOUT
    assert clock.monotonic() - started < 30, "not the 60 s that the source may take"


def test_a_file_with_an_error_is_not_used_at_all(files: Any) -> None:
    files("knowledge:\n" + source("a", "http://127.0.0.1:1"), MOUNTED.replace("[a]", "[b]"))

    with pytest.raises(SettingsError, match="no source b"):
        _ = shop().mounts


def test_what_sources_may_take_from_the_environment_is_masked_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KB_TOKEN", "tok7")
    monkeypatch.setenv("KB_DSN", "postgresql://u:pw-77@db/kb")
    monkeypatch.setenv("KB_HOST", "https://kb.example.com")
    monkeypatch.setenv("OTHER_TOKEN", "not-ours-to-hide")

    secrets = Settings.load().secrets()

    assert {"tok7", "pw-77"} <= set(secrets)
    assert not {"https://kb.example.com", "not-ours-to-hide"} & set(secrets)


@pytest.mark.parametrize(("mounts", "status"), [(MOUNTED, "fail"), ("pipelines: {}\n", "warn")])
def test_doctor_names_the_variable_that_a_source_lacks(files: Any, mounts: str, status: str) -> None:
    files("knowledge:\n" + source("a", "https://kb.example.com"), mounts)

    checks = list(AREAS["knowledge"](Settings.load()))

    assert [(check.status, check.cure) for check in checks if "KB_TOKEN" in check.found] == [
        (status, "set KB_TOKEN for the workers")
    ]


def test_searches_are_counted_by_source_and_status(files: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KB_TOKEN", "s3cr3t-value")
    counts: Counter[str] = Counter()

    class Census:
        def tally(self, more: dict[str, int]) -> None:
            counts.update(more)

    with service(said({"answer": "甲"})) as there:
        files("knowledge:\n" + source("a", "http://127.0.0.1:1", "fallback: [b]") + source("b", there.url), MOUNTED)
        mounts = counted_mounts(shop().mounts, Census())  # type: ignore[arg-type]  # only tally is used
        gather("kb_query", "问", mounts, seconds_left=60)

    assert counts["knowledge/UNAVAILABLE/a"] == 1
    assert counts["knowledge/HIT/b"] == 1
    assert counts["mounts/hit/answer/a"] == 1, "b stood in"
    assert counts["degraded/UNAVAILABLE/answer/a"] == 1
    assert {key.partition("/")[0] for key in counts} == {"knowledge", "knowledge_ms", "mounts", "degraded"}


# ---------------------------------------------------------------- WeKnora as a mounted source

WEKNORA = """\
knowledge:
  - id: cards
    provider_type: SEMANTIC_API
    config:
      endpoint: {url}
      method: POST
      timeout: 10
      headers: {{X-API-Key: "{{{{env.KB_TOKEN}}}}"}}
      adapter: weknora_rest
      request: {{kb_id: 素材库, match_count: 2, vector_threshold: 0.1}}
    injection: {{target_variable: context_knowledge}}
"""
CARD = {"standard_question": "找一条被当场刁难的素材", "answers": ["卡片原文：当场反转。"]}


@pytest.mark.parametrize(
    ("key", "base", "query", "status"),
    [
        (RETRIEVE_KEY, "素材库", "找一条被当场刁难的素材", Status.HIT),
        (RETRIEVE_KEY, "素材库", "zzzz", Status.ZERO_HIT),
        (RETRIEVE_KEY, "别的库", "找一条被当场刁难的素材", Status.KB_NOT_FOUND),
        ("sk-wrong-0000", "素材库", "找一条被当场刁难的素材", Status.UNAUTHORIZED),
        ("", "素材库", "找一条被当场刁难的素材", Status.MISCONFIGURED),
    ],
)
def test_weknora_is_a_source_like_any_other(
    files: Any, monkeypatch: pytest.MonkeyPatch, key: str, base: str, query: str, status: Status
) -> None:
    monkeypatch.setenv("KB_TOKEN", key)
    with WeknoraServer() as server:
        server.add(Base(base), CARD)
        files(WEKNORA.format(url=server.url))
        found = shop().source("cards").search(query)

    assert found.status == status, found.detail
    assert [hit.content for hit in found.hits] == (["卡片原文：当场反转。"] if status == Status.HIT else [])


def test_a_base_of_documents_gives_its_passages(files: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KB_TOKEN", RETRIEVE_KEY)
    passage = {"standard_question": "差旅制度", "answers": ["出差前填写申请，回来后三天内报销。"]}
    with WeknoraServer() as server:
        server.add(Base("素材库", kind="document"), passage)
        files(WEKNORA.format(url=server.url))
        found = shop().source("cards").search("差旅制度怎么说")

    assert [(hit.title, hit.content) for hit in found.hits] == [("差旅制度", "出差前填写申请，回来后三天内报销。")]


def test_calibrating_weknora_sees_what_its_own_threshold_would_hide(
    files: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KB_TOKEN", RETRIEVE_KEY)
    questions = tmp_path / "q.yaml"
    questions.write_text("- {question: 找一条被当场刁难的素材, expected: 当场反转}\n", "utf-8")
    with WeknoraServer() as server:
        server.add(Base("素材库"), CARD, {"standard_question": "找一道深夜吃的面", "answers": ["一碗面"]})
        files(WEKNORA.format(url=server.url).replace(", vector_threshold: 0.1", ""))
        report = json.loads(kbw("calibrate", "cards", "--questions", str(questions), "--json").output)

    assert (report["right"]["count"], report["wrong"]["count"], report["separates"]) == (1, 1, True)
    assert report["wrong"]["max"] < 0.5


def test_weknora_is_called_only_where_allowed(files: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KB_TOKEN", RETRIEVE_KEY)
    with WeknoraServer() as server:
        files(WEKNORA.format(url=server.url))
        monkeypatch.setenv("KBW_KNOWLEDGE_ALLOWED_HOSTS", "10.0.0.0/8")
        found = shop().source("cards").search("问")

    assert (found.status, server.calls) == (Status.MISCONFIGURED, [])
