"""The evidence is what the model chose, at the pinned commit, and nothing else."""

from __future__ import annotations

import json

import pytest

from tasks.contract.context import Limits
from tasks.contract.evidence import Evidence
from tasks.contract.selection import PageSelection, ReadLevel
from tasks.contract.shape import Note
from tasks.errors import PermanentError
from tasks.ports import RepoRef
from tasks.stages.fetch import fetch
from tests.answer_material import QUESTION, TASK, context, payload
from tests.fakes_kb_reader import FakeKbReader

REPO = RepoRef("team", "kb")
PAGE = """---
title: 自增主键
type: concept
keywords: [主键, 热点]
sources:
  - sourceId: 1
    fileName: 设计.docx
    archivedPath: source_files/设计.docx
    url: https://docs.example.com/a
    commitHash: abc
  - {sourceId: 2, archivedPath: ../etc/passwd}
---

# 自增主键

正文。
"""
FILES = {
    "catalog.json": json.dumps({"pages": [
        {"path": "a.md", "title": "旧标题", "sourceIds": [1], "projectIds": [7], "updatedAt": "2026-01-01"},
        {"path": "b.md", "title": "乙"}, {"path": "long.md", "title": "长"}, {"path": "broken.md", "title": "坏"},
    ]}),
    "a.md": PAGE, "b.md": "乙的正文", "long.md": "很长的一行。\n" * 100, "broken.md": "---\na: [\n---\n坏的正文",
    "README.md": "说明", ".kb/state.md": "内部",
}  # fmt: skip


def read(*paths: str, limits: Limits | None = None, **selection: object) -> Evidence:
    kb = FakeKbReader()
    commit = kb.publish(REPO, FILES)
    kb.publish(REPO, {**FILES, "a.md": "后来的内容", "b.md": "后来的内容"})
    given = {"selectedPages": [{"path": path, "reason": f"为了 {path}"} for path in paths], **selection}
    pinned = context(kb={"repo": "team/kb", "commit": commit}, analysisLimits=(limits or Limits()).document())
    return fetch(payload(), pinned, PageSelection.model_validate(given), kb=kb, repo=REPO)


def missing(evidence: Evidence) -> list[tuple[str, str]]:
    return [(page.path, page.reason) for page in evidence.missing_pages]


def test_a_page_is_read_at_the_pinned_commit_without_its_frontmatter() -> None:
    evidence = read("a.md", rationale="够用", unresolvedQuestions=["压测？"])
    [page] = evidence.evidence_pages
    assert page.content == "# 自增主键\n\n正文。"
    assert (page.title, page.type, page.keywords) == ("自增主键", "concept", ("主键", "热点"))
    assert (page.source_ids, page.project_ids, page.updated_at) == ((1,), (7,), "2026-01-01")
    assert page.selection_reason == "为了 a.md"
    assert (evidence.task_id, evidence.question, evidence.selected_page_count) == (TASK, QUESTION, 1)
    assert (evidence.selection_rationale, evidence.unresolved_questions) == ("够用", ("压测？",))


def test_traces_come_from_the_frontmatter_and_archives_only_from_source_files() -> None:
    first, second = read("a.md").evidence_pages[0].source_traces
    assert (first.file_name, first.archived_path, first.url, first.commit_hash) == (
        "设计.docx", "source_files/设计.docx", "https://docs.example.com/a", "abc",
    )  # fmt: skip
    assert second.archived_path == ""


def test_the_models_order_is_kept_and_nothing_is_added() -> None:
    assert [page.path for page in read("b.md", "a.md").evidence_pages] == ["b.md", "a.md"]


def test_an_empty_choice_is_legal() -> None:
    evidence = read()
    assert (evidence.evidence_pages, evidence.missing_pages, evidence.selected_page_count) == ((), (), 0)


def test_every_path_that_was_not_read_has_its_reason() -> None:
    evidence = read("none.md", "README.md", "../a.md", ".kb/state.md", "a.md", "./a.md")
    assert [page.path for page in evidence.evidence_pages] == ["a.md"]
    assert missing(evidence) == [
        ("none.md", "unknown"), ("README.md", "hidden"), ("../a.md", "unsafe"), (".kb/state.md", "hidden"),
        ("./a.md", "duplicate"),
    ]  # fmt: skip
    assert evidence.read_level is ReadLevel.NORMALIZED


def test_the_limit_counts_what_is_left() -> None:
    evidence = read("none.md", "a.md", "b.md", "long.md", limits=Limits(max_selected_pages=2))
    assert [page.path for page in evidence.evidence_pages] == ["a.md", "b.md"]
    assert missing(evidence) == [("none.md", "unknown"), ("long.md", "over_limit")]


def test_long_pages_are_cut_to_the_budget_and_say_so() -> None:
    evidence = read("b.md", "long.md", limits=Limits(max_evidence_page_chars=200))
    short, long = evidence.evidence_pages
    assert not short.truncated
    assert long.truncated
    assert len(long.content) <= 200
    assert [note.code for note in evidence.warnings] == ["PAGE_TRUNCATED"]


def test_odd_pages_and_replies_leave_a_warning() -> None:
    evidence = read("broken.md", warnings=[Note(code="X", message="来自回复").document()])
    assert evidence.evidence_pages[0].content == "坏的正文"
    assert [note.code for note in evidence.warnings] == ["X", "FRONTMATTER_BROKEN"]


def test_artefacts_of_another_job_or_repository_are_refused() -> None:
    kb = FakeKbReader()
    commit = kb.publish(REPO, FILES)
    for foreign in (context(taskId="query-9-9"), context(kb={"repo": "other/kb", "commit": commit})):
        with pytest.raises(PermanentError, match="BAD_PAYLOAD"):
            fetch(payload(), foreign, PageSelection(), kb=kb, repo=REPO)


def test_a_commit_that_is_gone_is_told() -> None:
    kb = FakeKbReader()
    kb.publish(REPO, FILES)
    with pytest.raises(PermanentError, match="COMMIT_GONE"):
        fetch(payload(), context(), PageSelection(), kb=kb, repo=REPO)
