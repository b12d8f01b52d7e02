"""The demo's knowledge base, jobs and recorded replies agree with each other and with the contract."""

from __future__ import annotations

import hashlib
import io
import json
import re
import zipfile
from functools import cache
from pathlib import Path
from string import Template
from typing import Any
from xml.etree import ElementTree

import frontmatter
import pytest

from tasks.contract.answer import Answer
from tasks.contract.payload import Payload, read_payload
from tasks.contract.selection import PageSelection
from tasks.kb import index_page
from tasks.kb.index_page import IndexEntry
from worker.adapters.model.recorded import load_recordings

DEMO = Path(__file__).resolve().parents[2] / "config" / "demo"
KB = DEMO / "kb"
ROOT_FILES = {"README.md", "index.md", "catalog.json", "AGENTS.md", "log.md"}
HIDDEN_FOLDERS = {".kb", "source_files"}
ENTRY_FIELDS = [
    "path", "title", "type", "kbType", "sourceIds", "updatedAt", "keywords", "projectIds", "relatedConcepts",
    "relatedResources", "relatedCodePages", "relatedPages", "contentHash", "sourceStatus",
]  # fmt: skip
RELATIONS = ("relatedConcepts", "relatedResources", "relatedCodePages", "relatedPages")
JOBS = ("query-demo-1", "query-demo-2", "query-demo-3")
OPENING = "知识库内容无法回答这个问题"
SUPPLEMENT = "以下为非知识库结论"


def tree() -> set[str]:
    files = (path.relative_to(KB) for path in KB.rglob("*") if path.is_file())
    return {str(path) for path in files if path.parts[0] not in HIDDEN_FOLDERS and str(path) not in ROOT_FILES}


@cache
def catalog() -> list[dict[str, Any]]:
    document = json.loads((KB / "catalog.json").read_text(encoding="utf-8"))
    assert document["version"] == 1
    pages: list[dict[str, Any]] = document["pages"]
    return pages


@cache
def page(path: str) -> tuple[dict[str, Any], str]:
    metadata, body = frontmatter.parse((KB / path).read_text(encoding="utf-8"))
    return metadata, body


@cache
def replies() -> dict[tuple[str, str], dict[str, Any]]:
    document = json.loads((DEMO / "replies.json").read_text(encoding="utf-8"))
    return {(item["question"], item["stage"]): item["reply"] for item in document["replies"]}


def job(task_id: str) -> Payload:
    template = Template((DEMO / "jobs" / f"{task_id}.json").read_text(encoding="utf-8"))
    filled = template.substitute(
        sharedDir="/shared", giteaUrl="http://127.0.0.1:3000", giteaOwner="team", kbRepo="team-kb"
    )
    return read_payload(filled.encode())


def selection(task_id: str) -> PageSelection:
    return PageSelection.model_validate(replies()[job(task_id).question, "select"])


def answer(task_id: str) -> Answer:
    return Answer.model_validate(replies()[job(task_id).question, "answer"])


def without_space(text: str) -> str:
    return re.sub(r"\s+", "", text)


# ---------------------------------------------------------------- the knowledge base


def test_the_catalog_lists_exactly_the_pages_of_the_tree_in_order() -> None:
    paths = [entry["path"] for entry in catalog()]

    assert paths == sorted(paths)
    assert set(paths) == tree()
    assert len(paths) >= 30
    assert all(path.endswith(".md") for path in paths)


@pytest.mark.parametrize("entry", catalog(), ids=lambda entry: entry["path"])
def test_a_catalog_entry_repeats_its_page(entry: dict[str, Any]) -> None:
    metadata, body = page(entry["path"])

    assert list(entry) == ENTRY_FIELDS
    assert {key: metadata[key] for key in ENTRY_FIELDS[1:]} == {key: entry[key] for key in ENTRY_FIELDS[1:]}
    assert entry["contentHash"] == hashlib.sha256(body.strip().encode()).hexdigest()
    assert metadata["createdAt"] <= metadata["updatedAt"]
    assert 600 <= len(body) <= 2_500


@pytest.mark.parametrize("entry", catalog(), ids=lambda entry: entry["path"])
def test_what_a_page_points_to_is_there(entry: dict[str, Any]) -> None:
    _, body = page(entry["path"])
    folder = (KB / entry["path"]).parent

    assert all(related in tree() for name in RELATIONS for related in entry[name])
    assert all((folder / link).resolve().is_file() for link in re.findall(r"\]\(([^)]+\.md)\)", body))


def test_page_ids_and_titles_are_unique() -> None:
    ids = [page(entry["path"])[0]["id"] for entry in catalog()]
    titles = [entry["title"] for entry in catalog()]

    assert len(set(ids)) == len(ids)
    assert len(set(titles)) == len(titles)


def test_every_source_trace_is_listed_and_its_original_is_unchanged() -> None:
    archived = set()
    for entry in catalog():
        traces = page(entry["path"])[0]["sources"]
        assert [trace["sourceId"] for trace in traces] == entry["sourceIds"]
        for trace in traces:
            if path := trace["archivedPath"]:
                assert path.startswith("source_files/")
                assert hashlib.sha256((KB / path).read_bytes()).hexdigest() == trace["sha256"]
                archived.add(path)
            else:
                assert re.fullmatch(r"[0-9a-f]{40}", trace["commitHash"])

    originals = {str(path.relative_to(KB)) for path in (KB / "source_files").rglob("*") if path.is_file()}
    assert originals == archived


def test_the_index_is_what_the_committer_would_write() -> None:
    updated_at = json.loads((KB / "catalog.json").read_text(encoding="utf-8"))["updatedAt"]
    entries = [IndexEntry(e["path"], e["title"], e["type"], tuple(e["keywords"])) for e in catalog()]

    assert (KB / "index.md").read_text(encoding="utf-8") == index_page.create(entries, updated_at)


# ---------------------------------------------------------------- the jobs


@pytest.mark.parametrize("task_id", JOBS)
def test_a_job_is_a_payload_of_the_contract(task_id: str) -> None:
    payload = job(task_id)

    assert payload.task_id == task_id
    assert payload.result_file == f"/shared/results/{task_id}.json"
    assert payload.policy_notes() == []


def test_the_attachment_is_a_word_file_with_the_note_that_the_question_asks_about() -> None:
    (attachment,) = job("query-demo-3").attachments
    data = (DEMO / "attachments" / Path(attachment.storage_path or "").name).read_bytes()

    assert attachment.sha256 == hashlib.sha256(data).hexdigest()
    assert attachment.size == len(data)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None
        text = "".join(ElementTree.fromstring(archive.read("word/document.xml")).itertext())
    assert "RESULT_DIR_MISSING" in text
    assert "7 个任务" in text


# ---------------------------------------------------------------- the recorded replies


def test_there_is_one_reply_for_each_question_and_model_stage() -> None:
    assert set(replies()) == {(job(task_id).question, stage) for task_id in JOBS for stage in ("select", "answer")}


def test_the_recorded_driver_reads_the_file() -> None:
    recordings = load_recordings(DEMO / "replies.json")

    assert {(entry.question, entry.stage): json.loads(entry.text) for entry in recordings} == replies()


@pytest.mark.parametrize("task_id", JOBS)
def test_a_reply_holds_only_fields_of_the_contract(task_id: str) -> None:
    given_selection = replies()[job(task_id).question, "select"]
    given_answer = replies()[job(task_id).question, "answer"]

    assert given_selection.items() <= selection(task_id).document().items()
    written = answer(task_id).document()
    assert given_answer.keys() <= written.keys()
    assert given_answer["qaEvaluation"] == written["qaEvaluation"]
    assert given_answer["qa"] == written["qa"]


@pytest.mark.parametrize("task_id", JOBS)
def test_the_selected_pages_exist_and_are_few(task_id: str) -> None:
    paths = [chosen.path for chosen in selection(task_id).selected_pages]

    assert 1 <= len(paths) <= 4
    assert len(set(paths)) == len(paths)
    assert set(paths) <= tree()


@pytest.mark.parametrize("task_id", JOBS)
def test_every_citation_is_a_selected_page_and_its_words_stand_there(task_id: str) -> None:
    selected = {chosen.path for chosen in selection(task_id).selected_pages}

    for source in answer(task_id).sources:
        metadata, body = page(source.path)
        assert source.path in selected
        assert (source.title, source.type) == (metadata["title"], metadata["type"])
        assert source.snippet
        assert without_space(source.snippet) in without_space(body)


def test_the_first_answer_is_worth_a_page() -> None:
    reply = answer("query-demo-1")

    assert job("query-demo-1").answer_policy.write_high_value_answer_to_qa
    assert reply.knowledge_sufficient
    assert len(reply.sources) >= 2
    assert reply.qa.write
    assert re.fullmatch(r"qa/[\w-]+\.md", reply.qa.path)
    assert reply.qa.content
    assert reply.qa_evaluation is not None
    assert reply.qa_evaluation.total >= 4
    assert not reply.qa_evaluation.attachment_driven
    assert not reply.qa_evaluation.ephemeral


def test_the_second_answer_says_that_the_knowledge_base_cannot_tell() -> None:
    reply = answer("query-demo-2")
    first_line = next(line for line in reply.answer.splitlines() if line.strip() and not line.startswith("#"))

    assert job("query-demo-2").answer_policy.allow_non_kb_supplement_when_insufficient
    assert not reply.knowledge_sufficient
    assert not reply.sources
    assert OPENING in first_line
    assert f"## {SUPPLEMENT}" in reply.answer
    assert not reply.qa.write


def test_the_third_answer_uses_the_attachment_without_keeping_it() -> None:
    reply = answer("query-demo-3")
    (attachment,) = job("query-demo-3").attachments
    (used,) = reply.used_attachments

    assert (used.attachment_id, used.file_name) == (attachment.attachment_id, attachment.file_name)
    assert used.role == "query_reference"
    assert reply.knowledge_sufficient
    assert not reply.qa.write
    assert not reply.high_value
