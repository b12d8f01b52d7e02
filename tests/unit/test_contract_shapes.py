"""Every border shape: written and read back it is the same, foreign fields do no harm, its schema can be used."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from tasks.contract import strict_json
from tasks.contract.answer import Answer, QaEvaluation
from tasks.contract.context import Context
from tasks.contract.evidence import Evidence
from tasks.contract.outcome import Outcome, Receipt
from tasks.contract.payload import Payload, read_payload
from tasks.contract.result import Result
from tasks.contract.selection import PageSelection, ReadLevel
from tasks.contract.shape import Shape
from worker.ops.schema import SHAPES, WRITTEN_BY_US, schema_of

PAGE = {"path": "a/好.md", "title": "好", "keywords": ["x"], "projectIds": [1, "p"], "sourceIds": [3]}
SMALLEST: dict[type[Shape], dict[str, Any]] = {
    Payload: {"taskId": "query-1-2", "conversationId": "1", "messageId": "2", "skill": "kb_query", "question": "?"},
    Context: {
        "schema": "kbw/query-context@1",
        "taskId": "query-1-2",
        "question": "?",
        "conversation": {"conversationId": "1", "messageId": "2"},
        "kb": {"repo": "team/kb", "commit": "a" * 40, "catalogPages": [PAGE], "starterPageCards": [PAGE]},
    },
    PageSelection: {"rationale": "r", "selectedPages": [{"path": "a.md", "reason": "x", "expectedUse": "y"}]},
    Evidence: {
        "taskId": "query-1-2",
        "question": "?",
        "commit": "a" * 40,
        "evidencePages": [{**PAGE, "content": "text", "sourceTraces": [{"sourceId": 1, "extra": "kept"}]}],
        "missingPages": [{"path": "b.md", "reason": "unknown"}],
    },
    Answer: {"answer": "好", "sources": [{"path": "a.md"}], "qaEvaluation": {"reuseValue": 1, "score": 5}},
    Outcome: {
        "taskId": "query-1-2",
        "answer": "好",
        "knowledgeSufficient": True,
        "qaPage": {"id": "qa-1", "path": "qa/a.md", "title": "t", "frontmatter": {}, "body": "b", "catalogEntry": {}},
    },
    Receipt: {"taskId": "query-1-2", "commitId": "b" * 40, "path": "qa/a.md", "created": True, "entry": {"path": "x"}},
    Result: {"success": True, "taskId": "query-1-2", "timings": {"prepare": 3}},
}


@pytest.mark.parametrize("shape", list(SMALLEST), ids=lambda shape: shape.__name__)
def test_written_and_read_back_it_is_the_same(shape: type[Shape]) -> None:
    first = shape.model_validate(SMALLEST[shape])
    written = strict_json.dumps(first.document())

    assert shape.model_validate(strict_json.loads(written)) == first


@pytest.mark.parametrize("shape", list(SMALLEST), ids=lambda shape: shape.__name__)
def test_a_newer_workers_fields_do_no_harm(shape: type[Shape]) -> None:
    newer = {**SMALLEST[shape], "fromTheFuture": {"a": [1]}}

    assert shape.model_validate(newer).document().items() >= shape.model_validate(SMALLEST[shape]).document().items()


@pytest.mark.parametrize("shape", list(SMALLEST), ids=lambda shape: shape.__name__)
def test_shapes_are_frozen(shape: type[Shape]) -> None:
    found = shape.model_validate(SMALLEST[shape])

    with pytest.raises(ValidationError):
        setattr(found, next(iter(shape.model_fields)), "changed")


@given(st.booleans(), st.text(), st.text(), st.lists(st.text(), max_size=3))
@settings(max_examples=50)
def test_any_text_survives_in_a_result(success: bool, answer: str, code: str, errors: list[str]) -> None:
    result = Result(success=success, task_id="t", answer=answer, error_code=code, errors=tuple(errors))
    read = Result.model_validate(strict_json.loads(strict_json.dumps(result.document())))

    assert read.answer == strict_json.clean(answer)
    assert list(read.errors) == strict_json.clean(errors)


def test_all_fields_of_a_result_are_always_present_in_the_contracts_order_and_kind() -> None:
    document = Result(success=False, task_id="query-1-2").document()

    assert document == {
        "success": False, "taskId": "query-1-2", "answer": "", "sources": [], "createdQaPath": "",
        "processedSources": [], "createdPages": [], "updatedPages": [], "archivedFiles": [], "skippedSources": [],
        "errors": [], "commitId": "", "knowledgeSufficient": False, "usedAttachments": [], "qaEvaluation": {},
        "errorCode": "", "retryable": False, "timings": {}, "degraded": [],
    }  # fmt: skip
    assert list(document)[:3] == ["success", "taskId", "answer"]


def test_a_score_that_the_model_states_is_kept_but_never_believed() -> None:
    evaluation = QaEvaluation.model_validate({"reuseValue": 1, "stability": 1, "score": 5})

    assert evaluation.total == 2
    assert evaluation.document()["score"] == 5


@pytest.mark.parametrize("score", [2, -1, "many"])
def test_scores_are_zero_or_one(score: Any) -> None:
    with pytest.raises(ValidationError):
        QaEvaluation.model_validate({"reuseValue": score})


def test_read_levels_are_ordered_from_best_to_worst() -> None:
    assert [level.rank for level in ReadLevel] == [0, 1, 2, 3, 4]
    assert [level.value for level in ReadLevel] == ["exact", "unwrapped", "normalized", "repaired", "guessed"]


# ---------------------------------------------------------------- schemas


@pytest.mark.parametrize("name", list(SHAPES))
def test_a_schema_stands_alone(name: str) -> None:
    schema = schema_of(name)
    text = json.dumps(schema)

    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["type"] == "object"
    referred = {part.split('"')[0] for part in text.split('"#/$defs/')[1:]}
    assert referred <= set(schema.get("$defs", {}))  # type: ignore[arg-type]


def test_the_payloads_schema_requires_what_the_contract_requires() -> None:
    assert schema_of("payload")["required"] == ["taskId", "conversationId", "messageId", "skill"]


def test_the_payloads_schema_knows_that_ids_are_numbers_or_text() -> None:
    properties = schema_of("payload")["properties"]

    for field in ("conversationId", "messageId"):
        assert properties[field]["anyOf"] == [{"type": "integer"}, {"type": "string"}]  # type: ignore[index]


def test_a_class_generator_sees_the_type_of_a_field_that_may_be_null() -> None:
    """Generators take ``anyOf`` for any object at all: ``Object resultFile``."""
    schema = schema_of("payload")

    assert schema["properties"]["resultFile"]["type"] == ["string", "null"]  # type: ignore[index]
    assert schema["$defs"]["AttachmentRef"]["properties"]["size"]["type"] == ["integer", "null"]  # type: ignore[index]


def test_the_payloads_schema_takes_null_wherever_the_reader_does() -> None:
    """A generated class writes null for whatever its user left unset."""
    schema: dict[str, Any] = schema_of("payload")
    parts = {name: dict.fromkeys(part["properties"]) for name, part in schema["$defs"].items()}
    lists = {"conversationHistory": [parts["HistoryMessage"]], "attachments": [parts["AttachmentRef"]]}
    objects = {"answerPolicy": parts["AnswerPolicy"], "team": parts["Team"], "platform": parts["Platform"]}
    required = {"taskId": "query-1-2", "conversationId": 1, "messageId": 2, "skill": "kb_query", "question": "问"}

    for document in (dict.fromkeys(schema["properties"]) | required, required | lists | objects):
        assert read_payload(document).deadline_seconds == 900
    for shape in (schema, *schema["$defs"].values()):
        optional = [field for name, field in shape["properties"].items() if name not in shape.get("required", ())]
        assert all(takes_null(field, schema["$defs"]) for field in optional)
    assert schema["$defs"]["AttachmentRef"]["type"] == "object"  # an entry of the list is there or not


def takes_null(field: dict[str, Any], defined: dict[str, Any]) -> bool:
    if "$ref" in field:
        return takes_null(defined[field["$ref"].rsplit("/", 1)[-1]], defined)
    if "anyOf" in field:
        return {"type": "null"} in field["anyOf"]
    return "type" not in field or "null" in field["type"]


@pytest.mark.parametrize("name", sorted(WRITTEN_BY_US))
def test_what_we_write_has_all_its_fields_required(name: str) -> None:
    schema = schema_of(name)

    assert set(schema["required"]) == set(schema["properties"])  # type: ignore[call-overload]


def test_enumerations_are_named() -> None:
    assert schema_of("evidence")["$defs"]["ReadLevel"]["enum"] == [level.value for level in ReadLevel]  # type: ignore[index]


@pytest.mark.parametrize("name", list(SHAPES))
def test_field_names_are_camel_case(name: str) -> None:
    schema = schema_of(name)
    objects = [schema, *schema.get("$defs", {}).values()]  # type: ignore[union-attr]
    names = [field for one in objects for field in one.get("properties", {})]

    assert [field for field in names if "_" in field] == []
