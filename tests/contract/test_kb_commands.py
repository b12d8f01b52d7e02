"""``kbw search`` and ``kbw kb …`` on a real repository over HTTP: what they print, mend and leave alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks.contract.answer import QaEvaluation
from tasks.contract.evidence import EvidencePage
from tasks.kb import qa_page
from tasks.ports import Change, RepoRef
from worker.demo.git_server import GitServer
from worker.ops.kb import check_kb, repair_kb, stale_pages
from worker.ops.search import knowledge_workshop, search
from worker.settings import Settings

REPO = RepoRef("team", "kb")
PAGES = {
    "a.md": "# 连接池\n\n连接池的大小由 HIKARI_MAX 设置。",
    "lost.md": "---\ntitle: 丢失的条目\ntype: note\n---\n# 丢失\n\n旧脚本丢了这一条。",
}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[GitServer]:
    entries = [{"path": path, "title": path, "type": "note"} for path in ("a.md", "dead.md")]
    files = {path: text.encode() for path, text in PAGES.items()}
    files["catalog.json"] = json.dumps({"version": 1, "pages": entries}, indent=2).encode()
    files["index.md"] = b"# Knowledge Base Index\n\n- [a](a.md)\n- [dead](dead.md)\n\nwritten by hand\n"
    with GitServer(tmp_path / "server") as server:
        server.create("team", "kb", files)
        yield server


@pytest.fixture
def settings(server: GitServer, tmp_path: Path) -> Settings:
    return Settings.load(
        {
            "GITEA_URL": server.url,
            "GITEA_BOT_USERNAME": server.user,
            "GITEA_BOT_TOKEN": server.token,
            "GITEA_ORG": "team",
            "TEAM_KB_REPO": "kb",
            "KBW_CACHE_DIR": str(tmp_path / "cache"),
        }
    )


def printed(capsys: pytest.CaptureFixture[str]) -> object:
    return json.loads(capsys.readouterr().out)


def test_search_tells_what_it_found_and_which_field_gave_what(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    assert search(settings, "连接池多大", 5, as_json=True) == 0
    found = printed(capsys)
    assert isinstance(found, dict)
    assert found["hits"][0]["path"] == "a.md"
    assert {"body", "headings"} <= set(found["hits"][0]["fields"])
    assert (found["hits"][0]["places"]["text"], found["legs"]["text"]) == (1, 1)
    assert found["terms"]["连接"] > 0
    assert search(settings, "完全无关的词", 5, as_json=False) == 1
    assert "asked for" in capsys.readouterr().out


def test_check_names_what_is_wrong_and_repair_mends_it_in_one_commit(
    server: GitServer, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check_kb(settings, as_json=True) == 1
    report = printed(capsys)
    assert isinstance(report, dict)
    assert {("ORPHAN", "lost.md"), ("DEAD_ENTRY", "dead.md")} <= {(f["code"], f["path"]) for f in report["findings"]}
    before = server.head("team", "kb")
    assert repair_kb(settings, dry_run=True, as_json=True) == 0
    assert server.head("team", "kb") == before
    capsys.readouterr()
    assert repair_kb(settings, dry_run=False, as_json=True) == 0
    done = printed(capsys)
    assert isinstance(done, dict)
    assert (done["added"], done["dropped"], done["commit"]) == (["lost.md"], ["dead.md"], server.head("team", "kb"))
    assert server.git("team", "kb", "rev-list", "--count", f"{before}..main").strip() == "1"
    assert server.git("team", "kb", "diff", "--name-only", before, "main").split() == ["catalog.json", "index.md"]
    index = server.git("team", "kb", "show", "main:index.md")
    assert "written by hand" in index
    assert "dead.md" not in index
    assert "lost.md" in index
    assert check_kb(settings, as_json=True) == 0
    capsys.readouterr()
    assert repair_kb(settings, dry_run=False, as_json=False) == 0
    assert "nothing to mend" in capsys.readouterr().out
    assert server.head("team", "kb") == done["commit"]


def test_a_refused_repair_says_so(server: GitServer, settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    hook = server.repo_path("team", "kb") / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho 'protected branch' >&2\nexit 1\n")
    hook.chmod(0o755)
    assert repair_kb(settings, dry_run=False, as_json=True) == 1
    report = printed(capsys)
    assert isinstance(report, dict)
    assert report["errors"]
    assert report["commit"] == ""


def test_a_qa_page_is_stale_once_its_evidence_changed_or_went(
    server: GitServer, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    evidence = [EvidencePage(path=path, title=path, type="note") for path in PAGES]
    page = qa_page.build_qa_page(
        task_id="query-1-1",
        question="连接池多大？",
        wanted_path="",
        title="连接池大小",
        content="结论。",
        scenario="",
        evaluation=QaEvaluation(reuse_value=1, synthesis_depth=1, evidence_quality=1, stability=1, reason="常问"),
        evidence=evidence,
        now="2026-11-30T12:00:00Z",
    )
    shop = knowledge_workshop(settings)
    shop.writer.commit(REPO, [Change("query-1-1", page)])
    repair_kb(settings, dry_run=False, as_json=True)
    capsys.readouterr()
    assert stale_pages(settings, as_json=True) == 0
    assert printed(capsys) == []
    server.commit("team", "kb", {"a.md": b"# other"}, delete=["lost.md"])
    assert stale_pages(settings, as_json=True) == 1
    assert printed(capsys) == [{"path": page.path, "title": "连接池大小", "changed": ["a.md"], "gone": ["lost.md"]}]
    assert stale_pages(settings, as_json=False) == 1
    assert "gone     lost.md" in capsys.readouterr().out
