"""The main job in memory: what the backend sends, what it gets, and what is left behind."""

from __future__ import annotations

import json

from tests.cooperative_model import answer_from_pages
from tests.fakes import PAGES, REPO, World, payload
from tests.fakes_model import FakeModel

TASK = "query-c1-m1"


def test_a_question_becomes_a_grounded_answer_a_page_and_one_result() -> None:
    world = World()
    world.accept(payload(1))

    world.settle()

    result = json.loads(world.sink.delivered[f"results/{TASK}.json"][0])
    assert result["success"]
    assert {source["path"] for source in result["sources"]} <= set(PAGES)
    assert result["answer"].rstrip().count("## 参考来源") == 1
    assert result["createdQaPath"].startswith("qa/")
    assert [entry["path"] for entry in result["createdPages"]] == [result["createdQaPath"]]
    assert result["processedSources"] == ["team-kb"]
    head = world.writer.repos[REPO].head
    assert head.id == result["commitId"]
    assert head.task_ids == (TASK,)
    assert {result["createdQaPath"], "catalog.json", "index.md"} <= set(head.files)


def test_each_stage_runs_once_in_order_and_leaves_its_artefact() -> None:
    world = World()
    world.accept(payload(1))

    world.settle()

    stages = ["prepare", "select", "fetch", "answer", "apply", "commit"]
    assert world.events(TASK, "checkpoint", "finish") == [*(f"{s}:checkpoint" for s in stages), "publish:finish"]
    assert {
        "payload.json", "context.json", "page-selection.json", "evidence.json", "answer.json", "outcome.json",
        "receipt.json", "result.json", "events.jsonl", "calls.jsonl", "replies/select-1.txt", "replies/answer-1.txt",
    } == set(world.folder(TASK).files)  # fmt: skip
    assert list(world.result(TASK)["timings"]) == stages
    assert world.record(TASK).state == "done"
    assert world.record(TASK).commit_id == world.result(TASK)["commitId"]


def test_a_step_that_follows_on_the_same_queue_needs_no_wake_up_call() -> None:
    world = World()
    world.accept(payload(1, answerPolicy={"writeHighValueAnswerToQa": False}))

    world.settle()

    assert world.history == [f"{TASK} {stage}" for stage in ("prepare", "select", "fetch", "answer", "apply")]
    assert world.record(TASK).state == "done"


def test_a_question_that_the_knowledge_base_cannot_answer_skips_the_commit() -> None:
    world = World(model=FakeModel(answer_from_pages(choose=lambda _: [], cite=lambda _: [])))
    world.accept(payload(1))

    world.settle()

    result = world.result(TASK)
    assert result["success"]
    assert not result["knowledgeSufficient"]
    assert (result["commitId"], result["createdQaPath"]) == ("", "")
    assert "commit:start" not in world.events(TASK)
    assert "receipt.json" not in world.folder(TASK).files


def test_all_readers_of_a_job_see_the_commit_it_was_pinned_to() -> None:
    world = World()
    world.accept(payload(1))
    world.step()  # prepare
    world.kb.publish(REPO, {"concepts/new.md": "# 后来的页面\n"})

    world.settle()

    pinned = json.loads(world.folder(TASK).files["context.json"])["kb"]["commit"]
    evidence = json.loads(world.folder(TASK).files["evidence.json"])
    assert evidence["commit"] == pinned
    assert {page["path"] for page in evidence["evidencePages"]} == set(PAGES)


def test_an_unknown_skill_gets_an_error_result_not_silence() -> None:
    world = World()
    world.accept(payload(1, skill="make_coffee", taskId="coffee-c1-m1"))

    world.settle()

    result = world.result("coffee-c1-m1")
    assert (result["success"], result["errorCode"]) == (False, "UNKNOWN_SKILL")
    assert "make_coffee" in result["errors"][0]
    assert world.record("coffee-c1-m1").state == "failed"
