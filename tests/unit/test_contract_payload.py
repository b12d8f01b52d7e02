"""The payload (CONTRACT §2), row by row: what is tolerated, what is refused, and in which words."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

import pytest

from tasks.contract.payload import Payload, content_digest, read_payload
from tasks.errors import PermanentError

MINIMAL: dict[str, Any] = {
    "taskId": "query-1-2",
    "conversationId": 1,
    "messageId": 2,
    "skill": "kb_query",
    "question": "怎么部署？",
}


def read(**changes: Any) -> Payload:
    return read_payload({**MINIMAL, **changes})


def refusal(document: Any) -> PermanentError:
    with pytest.raises(PermanentError) as caught:
        read_payload(document)
    assert caught.value.code == "BAD_PAYLOAD"
    return caught.value


def without(field: str) -> dict[str, Any]:
    return {key: value for key, value in MINIMAL.items() if key != field}


# ---------------------------------------------------------------- the document


def test_five_fields_are_enough() -> None:
    payload = read_payload(json.dumps(MINIMAL).encode())

    assert (payload.task_id, payload.conversation_id, payload.message_id) == ("query-1-2", "1", "2")
    assert payload.deadline_seconds == 900
    assert payload.answer_policy.scope_selection == "auto_by_openclaw"
    assert payload.answer_policy.knowledge_base_first
    assert not payload.answer_policy.allow_non_kb_supplement_when_insufficient
    assert not payload.answer_policy.write_high_value_answer_to_qa
    assert payload.result_file is None


def test_a_byte_order_mark_is_tolerated() -> None:
    assert read_payload(b"\xef\xbb\xbf" + json.dumps(MINIMAL).encode()).task_id == "query-1-2"


def test_unknown_fields_are_kept_at_every_level() -> None:
    payload = read(
        future={"a": [1]},
        attachments=[{"fileName": "a.txt", "virus": "no"}],
        team={"name": "T", "size": 4},
        conversationHistory=[{"role": "user", "content": "?", "mood": "good"}],
    )
    document = payload.document()

    assert document["future"] == {"a": [1]}
    assert document["attachments"][0]["virus"] == "no"  # type: ignore[index]
    assert document["team"]["size"] == 4  # type: ignore[index]
    assert document["conversationHistory"][0]["mood"] == "good"  # type: ignore[index]


@pytest.mark.parametrize(
    ("content", "told_en", "told_zh"),
    [
        (b"{", "not valid JSON", "不是合法的 JSON"),
        (b"", "not valid JSON", "不是合法的 JSON"),
        (b'{"a": NaN}', "NaN", "NaN"),
        (b"\xff\xfe{}", "not valid JSON", "不是合法的 JSON"),
        (b"[]", "must be a JSON object, not array", "收到的是数组"),
        (b'"x"', "must be a JSON object, not text", "收到的是文本"),
        (b"null", "must be a JSON object, not null", "收到的是 null"),
        (b"[" * 200 + b"]" * 200, "nested deeper", "不是合法的 JSON"),
        (b"[" * 100_000, "nested deeper", "不是合法的 JSON"),
    ],
)
def test_what_is_no_json_object_is_refused(content: bytes, told_en: str, told_zh: str) -> None:
    error = refusal(content)

    assert told_en in error.en
    assert told_zh in error.zh


def test_an_object_that_is_nested_without_end_is_refused_before_anybody_walks_it() -> None:
    deep: Any = "x"
    for _ in range(50_000):
        deep = [deep]

    assert "nested deeper" in refusal({**MINIMAL, "future": deep}).en


# ---------------------------------------------------------------- ids


@pytest.mark.parametrize(
    ("conversation", "message", "task"),
    [
        (1, 2, "query-1-2"),
        ("01", "2", "query-01-2"),
        (7.0, 8.0, "query-7-8"),
        (0, 0, "query-0-0"),
        ("3fa85f64-5717-4562-b3fc-2c963f66afa6", "m-1", "query-3fa85f64-5717-4562-b3fc-2c963f66afa6-m-1"),
        ("a_b.c:d", "X", "query-a_b.c:d-X"),
        ("-", "-", "query----"),
        (9_007_199_254_740_993, 1, "query-9007199254740993-1"),
    ],
)
def test_ids_are_numbers_or_text_with_hyphens(conversation: Any, message: Any, task: str) -> None:
    assert read(conversationId=conversation, messageId=message, taskId=task).task_id == task


@pytest.mark.parametrize(
    "changes",
    [
        {"taskId": "query-1-3"},
        {"taskId": "query-12"},
        {"taskId": "material-1-2"},
        {"taskId": "1-2"},
        {"taskId": "query-1-2-3"},
        {"taskId": "../query-1-2"},
        {"taskId": "query/1-2"},
        {"taskId": "query-1-2\n"},
        {"taskId": "query-1-2\\"},
        {"taskId": ""},
        {"taskId": "query-" + "x" * 200 + "-2", "conversationId": "x" * 200},
        {"conversationId": "..", "taskId": "query-..-2"},
        {"conversationId": "a b", "taskId": "query-a b-2"},
        {"conversationId": "会话", "taskId": "query-会话-2"},
        {"conversationId": "1\n", "taskId": "query-1\n-2"},
        {"conversationId": True, "taskId": "query-True-2"},
        {"conversationId": 1.5, "taskId": "query-1.5-2x"},
        {"conversationId": None},
        {"messageId": ""},
        {"messageId": []},
    ],
)
def test_an_id_that_does_not_fit_is_refused(changes: dict[str, Any]) -> None:
    error = refusal({**MINIMAL, **changes})

    assert re.search(r"taskId|conversationId|messageId", error.en)
    assert re.search(r"taskId|conversationId|messageId", error.zh)


def test_the_prefix_belongs_to_the_skill() -> None:
    assert read(skill="material_search", taskId="material-1-2", question="").skill == "material_search"
    assert read(skill="new_thing", taskId="whatever-1-2", question=None).skill == "new_thing"
    refusal({**MINIMAL, "skill": "material_search"})


# ---------------------------------------------------------------- required fields


@pytest.mark.parametrize("field", ["taskId", "conversationId", "messageId", "skill", "question"])
def test_a_missing_field_is_named(field: str) -> None:
    error = refusal(without(field))

    assert f"{field} (missing): " in error.en
    assert f"缺少必填字段 {field}" in error.zh


@pytest.mark.parametrize("blank", ["", "  ", "\n", None, 0], ids=repr)
def test_a_question_must_not_be_blank(blank: Any) -> None:
    assert "question" in refusal({**MINIMAL, "question": blank}).en


@pytest.mark.parametrize("blank", ["", " "])
def test_a_skill_must_not_be_blank(blank: str) -> None:
    assert "skill" in refusal({**MINIMAL, "skill": blank}).en


# ---------------------------------------------------------------- blanks mean "not given"


@pytest.mark.parametrize("blank", ["", 0, 0.0, None], ids=repr)
@pytest.mark.parametrize(
    "field",
    [
        "conversationHistory", "attachments", "answerPolicy", "team", "platform", "payloadFile", "resultFile",
        "sharedDir", "deadlineSeconds", "protocolVersion",
    ],
)  # fmt: skip
def test_a_blank_optional_field_is_not_given(field: str, blank: Any) -> None:
    assert read(**{field: blank}) == read()


@pytest.mark.parametrize("blank", ["", 0, None], ids=repr)
def test_blanks_inside_objects_are_not_given_either(blank: Any) -> None:
    payload = read(
        answerPolicy={"scopeSelection": blank, "knowledgeBaseFirst": blank, "writeHighValueAnswerToQa": blank},
        team={"kbRepo": blank, "name": blank},
        platform={"giteaUrl": blank, "giteaOwner": blank, "sharedDir": blank},
        attachments=[{"storagePath": blank, "sha256": blank, "size": blank, "attachmentId": blank}],
        conversationHistory=[{"id": blank, "role": blank, "content": blank, "sources": blank, "createdQaPath": blank}],
    )

    assert payload.answer_policy.knowledge_base_first
    assert payload.team.kb_repo is None
    assert payload.platform.gitea_url is None
    assert payload.attachments[0].storage_path is None
    assert payload.attachments[0].size is None
    assert payload.conversation_history[0].role == "user"


def test_false_is_a_value_not_a_blank() -> None:
    assert not read(answerPolicy={"knowledgeBaseFirst": False}).answer_policy.knowledge_base_first
    assert not read(attachments=[{"temporary": False}]).attachments[0].temporary


# ---------------------------------------------------------------- policy, team, deadline


def test_default_policy_values_are_not_noted() -> None:
    assert read(answerPolicy={"scopeSelection": "auto_by_openclaw", "knowledgeBaseFirst": True}).policy_notes() == []


@pytest.mark.parametrize("scope", ["manual", 7, ["a"], {"pages": []}])
def test_another_scope_is_accepted_and_noted(scope: Any) -> None:
    notes = read(answerPolicy={"scopeSelection": scope}).policy_notes()

    assert [note.field for note in notes] == ["answerPolicy.scopeSelection"]


def test_knowledge_base_first_false_is_noted() -> None:
    notes = read(answerPolicy={"knowledgeBaseFirst": False}).policy_notes()

    assert [note.field for note in notes] == ["answerPolicy.knowledgeBaseFirst"]


@pytest.mark.parametrize("repo", ["kb", "team/kb", "a.b_c-d/e.f"])
def test_repository_names(repo: str) -> None:
    assert read(team={"kbRepo": repo}).team.kb_repo == repo


@pytest.mark.parametrize(
    "repo", ["..", "a/..", "../kb", "a/b/c", "/kb", "kb/", "a b", "kb\n", "http://x/y", "团队/库", ".", "a?b", "a%2fb"]
)
def test_a_repository_name_that_could_leave_the_server_is_refused(repo: str) -> None:
    assert "team.kbRepo" in refusal({**MINIMAL, "team": {"kbRepo": repo}}).en


@pytest.mark.parametrize("owner", ["a/b", "..", "a b", "团队"])
def test_an_owner_is_one_name(owner: str) -> None:
    assert "platform.giteaOwner" in refusal({**MINIMAL, "platform": {"giteaOwner": owner}}).en


@pytest.mark.parametrize(("given", "seconds"), [(10, 10), (86_400, 86_400), ("120", 120), (33.5, 33.5)])
def test_deadlines_within_bounds(given: Any, seconds: float) -> None:
    assert read(deadlineSeconds=given).deadline_seconds == seconds


@pytest.mark.parametrize("given", [9.9, 86_401, -1, True, "soon", [60], 1e999])
def test_deadlines_out_of_bounds(given: Any) -> None:
    assert "deadlineSeconds" in refusal({**MINIMAL, "deadlineSeconds": given}).en


# ---------------------------------------------------------------- the words of a refusal


@pytest.mark.parametrize(
    ("changes", "en", "zh"),
    [
        ({"question": {"text": "?"}}, "question (object): must be text", "字段 question（收到对象）：应为文本"),
        ({"attachments": "a.txt"}, "attachments (text): must be an array", "字段 attachments（收到文本）：应为数组"),
        ({"attachments": [None]}, "attachments.0 (null): must be an object", "（收到 null）：应为对象"),
        ({"attachments": [{"size": -1}]}, "attachments.0.size (number): must be at least 0", "不能小于 0"),
        ({"attachments": [{"size": 1.5}]}, "must be a whole number", "应为整数"),
        ({"attachments": [{"attachmentId": [1]}]}, "attachmentId (array): must be a number or text", "应为数字或文本"),
        ({"team": 7}, "team (number): must be an object", "字段 team（收到数字）：应为对象"),
        ({"answerPolicy": {"writeHighValueAnswerToQa": "maybe"}}, "must be true or false", "应为 true 或 false"),
        ({"deadlineSeconds": 5}, "deadlineSeconds (number): must be at least 10", "不能小于 10"),
        ({"deadlineSeconds": 100_000}, "must be at most 86400", "不能大于 86400"),
        ({"taskId": "query-9-9"}, "taskId (text): must be 'query-1-2'", "字段 taskId（收到文本）：应为 query-1-2"),
        ({"conversationId": [1]}, "conversationId (array): must be a number or text", "应为数字或文本"),
        ({"messageId": True}, "messageId (boolean): must be a number or text", "（收到布尔值）：应为数字或文本"),
        ({"question": " "}, "question (text): must not be blank", "字段 question（收到文本）：不能为空"),
    ],
)  # fmt: skip
def test_a_refusal_names_field_kind_and_what_is_allowed(changes: dict[str, Any], en: str, zh: str) -> None:
    error = refusal({**MINIMAL, **changes})

    assert en in error.en
    assert zh in error.zh


@pytest.mark.parametrize(
    "document",
    [
        {},
        {**MINIMAL, "conversationHistory": [{"role": [], "content": {}, "id": {}}], "team": [], "platform": "x"},
        {**MINIMAL, "attachments": [{"size": "many", "temporary": "sometimes", "storagePath": 1.5}]},
        {**MINIMAL, "resultFile": [], "sharedDir": {}, "payloadFile": True, "protocolVersion": []},
        {**MINIMAL, "conversationId": "a b", "messageId": "c/d"},
    ],
)
def test_no_english_sentence_reaches_the_team_member(document: dict[str, Any]) -> None:
    zh = refusal(document).zh

    assert not re.search(r"[A-Za-z]+ [A-Za-z]+ [A-Za-z]+", zh.replace("字母、数字和 _ . : -", "")), zh


def test_a_refusal_never_repeats_a_value() -> None:
    error = refusal({**MINIMAL, "question": ["my private words"], "team": {"kbRepo": "private/../name"}})

    assert "private" not in error.en + error.zh


def test_a_payload_full_of_mistakes_is_told_in_a_bounded_line() -> None:
    error = refusal({**MINIMAL, "attachments": [None] * 1_000})

    assert error.en.count("attachments.") == 10


# ---------------------------------------------------------------- same content


@pytest.mark.parametrize(
    "changes",
    [
        {"payloadFile": "/a/b.json"},
        {"resultFile": "other.json"},
        {"sharedDir": "/mnt/x"},
        {"deadlineSeconds": 60},
        {"conversationId": "1", "messageId": "2"},
    ],
)
def test_paths_deadline_and_the_kind_of_ids_do_not_count_as_content(changes: dict[str, Any]) -> None:
    assert content_digest({**MINIMAL, **changes}) == content_digest(MINIMAL)


def test_the_platforms_shared_dir_does_not_count_either() -> None:
    one = {**MINIMAL, "platform": {"giteaUrl": "https://g", "sharedDir": "/a"}}
    other = {**MINIMAL, "platform": {"giteaUrl": "https://g", "sharedDir": "/b"}}

    assert content_digest(one) == content_digest(other)


@pytest.mark.parametrize(
    "changes",
    [
        {"question": "别的问题"},
        {"answerPolicy": {"writeHighValueAnswerToQa": True}},
        {"attachments": [{"attachmentId": 1}]},
        {"future": 1},
        {"team": {"kbRepo": "kb2"}},
    ],
)
def test_everything_else_counts(changes: dict[str, Any]) -> None:
    assert content_digest({**MINIMAL, **changes}) != content_digest(MINIMAL)


def test_the_order_of_fields_does_not_count() -> None:
    assert content_digest(dict(reversed(MINIMAL.items()))) == content_digest(MINIMAL)


def test_the_digest_of_a_known_payload_never_changes() -> None:
    """A later version must not turn the jobs of today into conflicts."""
    canonical = '{"conversationId":"1","messageId":"2","question":"怎么部署？","skill":"kb_query","taskId":"query-1-2"}'

    assert content_digest(MINIMAL) == hashlib.sha256(canonical.encode()).hexdigest()
