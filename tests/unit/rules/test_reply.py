"""Reading model replies: what is helped, what is refused, and that nothing else can happen."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.contract import strict_json
from tasks.contract.answer import Answer
from tasks.contract.selection import PageSelection, ReadLevel
from tasks.errors import Code
from tasks.rules.reply import ReplyFault, read_answer, read_selection

SELECTION = {"rationale": "热点", "selectedPages": [{"path": "a.md", "reason": "写法"}], "unresolvedQuestions": []}
ANSWER = {
    "answer": "## 结论\n\n用 `AUTO_RANDOM`。",
    "knowledgeSufficient": True,
    "sources": [{"path": "a.md", "snippet": "打散"}],
    "usedAttachments": [],
    "highValue": True,
    "qaEvaluation": {"reuseValue": 1, "reason": "常问"},
    "qa": {"write": True, "title": "如何打散"},
    "errors": [],
}


def text_of(document: Any) -> str:
    return json.dumps(document, ensure_ascii=False)


def paths(selection: PageSelection) -> list[str]:
    return [page.path for page in selection.selected_pages]


def verdict_on(read: Callable[..., Any], reply: str | bytes) -> PageSelection | Answer | ReplyFault:
    try:
        found: PageSelection | Answer = read(reply)
    except ReplyFault as fault:
        return fault
    return found


def fault_of(read: Callable[..., Any], reply: str | bytes, **more: str) -> ReplyFault:
    with pytest.raises(ReplyFault) as caught:
        read(reply, **more)
    return caught.value


class TestTheCorpus:
    """Every odd reply of the shared corpus: outcome, level and code as the verdict on that one reply."""

    # What only other rules can decide (evidence, layout of the answer) is their tests' business.
    DECIDED_BY_LATER_RULES = frozenset({"S14", "S15", "S16", "A18", "A24"})

    @pytest.fixture
    def corpus(self, shared: Callable[[str], Path]) -> list[tuple[dict[str, Any], bytes]]:
        folder = shared("model_replies")
        cases = json.loads((folder / "manifest.json").read_text())["cases"]
        assert len(cases) == 25
        return [(case, (folder / case["file"]).read_bytes()) for case in cases]

    def test_each_reply_is_read_at_its_level_or_refused_with_its_code(
        self, corpus: list[tuple[dict[str, Any], bytes]]
    ) -> None:
        verdicts, expected = {}, {}
        for case, data in corpus:
            name, expect = case["id"], case["expect"]
            if name in self.DECIDED_BY_LATER_RULES:
                continue
            read = read_selection if case["kind"] == "selection" else read_answer
            expected[name] = expect.get("code") or expect["level"]
            verdict = verdict_on(read, data)
            if isinstance(verdict, ReplyFault):
                verdicts[name] = verdict.code.value
                assert verdict.retryable is expect["retryable"]
            else:
                verdicts[name] = verdict.read_level.value
        assert verdicts == expected

    def test_the_content_survives(self, corpus: list[tuple[dict[str, Any], bytes]]) -> None:
        for case, data in corpus:
            expect = case["expect"]
            if expect["outcome"] != "accepted" or case["id"] in self.DECIDED_BY_LATER_RULES:
                continue
            if case["kind"] == "selection":
                assert paths(read_selection(data)) == expect["paths"], case["id"]
                continue
            answer = read_answer(data)
            assert expect.get("contains", "") in answer.answer, case["id"]
            assert answer.qa_evaluation is not None
            assert answer.qa_evaluation.total == expect.get("score", answer.qa_evaluation.total), case["id"]
            if "knowledgeSufficient" in expect:
                assert answer.knowledge_sufficient is expect["knowledgeSufficient"], case["id"]
            if expect["qa"] == "not-requested":
                assert (answer.high_value, answer.qa.write) == (False, False), case["id"]
            strict_json.loads(strict_json.dumps(answer.document()))

    def test_bad_quotes_lose_neither_text_nor_sources(self, corpus: list[tuple[dict[str, Any], bytes]]) -> None:
        data = next(data for case, data in corpus if case["id"] == "A05")
        answer = read_answer(data)
        assert "SHARD_ROW_ID_BITS | 非聚簇表用" in answer.answer
        assert len(answer.sources) == 2
        assert answer.qa.title == "自增主键写入热点如何打散"


class TestWhatStandsAroundTheObject:
    @pytest.mark.parametrize(
        "wrapped",
        [
            "\ufeff{}",
            "```json\n{}\n```",
            "```\n{}\n```\n希望有帮助！",
            "以下是选择结果：\n{}",
            "{}\n\n以上。",
            '<think>\n先看 {{"path": "b.md"}} \n</think>\n{}',
            '先想一想 {{"path": "b.md"}}\n</think>\n```json\n{}\n```',
            "<think>一</think>\n<reasoning>二</reasoning>\n{}",
            "[openclaw] gateway 2026.9\n{}",
            "用花括号 {{ 表示对象：\n{}",
        ],
    )
    def test_is_taken_away(self, wrapped: str) -> None:
        selection = read_selection(wrapped.format(text_of(SELECTION)))
        assert selection.read_level is ReadLevel.UNWRAPPED
        assert paths(selection) == ["a.md"]

    def test_the_same_object_twice_is_one(self) -> None:
        assert read_selection(f"{text_of(SELECTION)}\n{text_of(SELECTION)}").read_level is ReadLevel.UNWRAPPED

    def test_two_different_objects_are_refused(self) -> None:
        other = text_of(SELECTION | {"selectedPages": []})
        assert fault_of(read_selection, f"{text_of(SELECTION)}\n{other}").code is Code.AMBIGUOUS_JSON

    def test_an_object_inside_an_unfinished_one_is_not_taken_for_the_reply(self) -> None:
        cut = '{"selectedPages": [{"path": "a.md"}, {"pa'
        assert fault_of(read_selection, cut).code is Code.TRUNCATED

    def test_fences_inside_a_strict_reply_stay(self) -> None:
        text = '建表：\n\n```sql\nCREATE\n```\n\n```json\n{"id": 1}\n```\n</think>'
        answer = read_answer(text_of(ANSWER | {"answer": text}))
        assert (answer.answer, answer.read_level) == (text, ReadLevel.EXACT)

    def test_a_document_written_as_a_json_string_is_opened(self) -> None:
        assert read_selection(text_of(text_of(SELECTION))).read_level is ReadLevel.UNWRAPPED


class TestRepair:
    @pytest.mark.parametrize(
        "broken",
        [
            '{"selectedPages": [{"path": "a.md",},],}',
            '{"selectedPages": [{"path": "a.md"} /* 必要 */, ], // 完\n}',
            "{'selectedPages': [{'path': 'a.md', 'reason': 'it\\'s'}], 'rationale': None}",
            '{"rationale": "第一行\n第二行\t。", "selectedPages": ["a.md"]}',
            '{"rationale": "正则 \\d+ 与 \\(x\\)", "selectedPages": ["a.md"]}',
            '```json\n{"selectedPages": ["a.md"],}\n```',
        ],
    )
    def test_that_loses_nothing_is_marked_repaired(self, broken: str) -> None:
        selection = read_selection(broken)
        assert selection.read_level is ReadLevel.REPAIRED
        assert paths(selection) == ["a.md"]

    def test_keeps_the_text_of_strings(self) -> None:
        selection = read_selection('{"rationale": "第一行\n\\d \\u4e2d // 不是注释", "selectedPages": [],}')
        assert selection.rationale == "第一行\n\\d 中 // 不是注释"

    @pytest.mark.parametrize(
        ("broken", "text"),
        [
            ('{"answer": "他说"好", 然后"走"了。", "knowledgeSufficient": true}', '他说"好", 然后"走"了。'),
            ('{"answer": "屏幕 5" 宽，很好。", "knowledgeSufficient": true}', '屏幕 5" 宽，很好。'),
        ],
    )
    def test_that_guesses_string_borders_is_marked_guessed(self, broken: str, text: str) -> None:
        answer = read_answer(broken)
        assert (answer.answer, answer.read_level) == (text, ReadLevel.GUESSED)

    @pytest.mark.parametrize(
        "broken",
        [
            '{"answer": "用"}"表示", "knowledgeSufficient": true}',
            '{"answer": "路径 "//host/x" 在这里", "knowledgeSufficient": true}',
        ],
    )
    def test_that_would_lose_text_is_not_made(self, broken: str) -> None:
        verdict = verdict_on(read_answer, broken)
        if isinstance(verdict, ReplyFault):
            assert verdict.code in (Code.INVALID_JSON, Code.SCHEMA, Code.TRUNCATED)
        else:
            assert isinstance(verdict, Answer)
            assert "表示" in verdict.answer or "在这里" in verdict.answer

    def test_text_that_fell_out_of_its_string_does_not_become_a_field(self) -> None:
        broken = '{"answer": "甲", "乙": 丙, "knowledgeSufficient": true}'
        assert fault_of(read_answer, broken).code in (Code.SCHEMA, Code.INVALID_JSON)


class TestWhatIsCut:
    @pytest.mark.parametrize("reason", ["length", "content_filter", "tool_calls", "max_tokens"])
    def test_a_reply_that_the_server_did_not_end_is_refused_though_it_is_whole(self, reason: str) -> None:
        fault = fault_of(read_answer, text_of(ANSWER), finish_reason=reason)
        assert fault.code is Code.TRUNCATED
        assert reason in fault.zh

    @pytest.mark.parametrize("reason", ["", "stop", "STOP", "eos_token", "end_turn"])
    def test_an_ended_reply_is_read(self, reason: str) -> None:
        assert read_answer(text_of(ANSWER), finish_reason=reason).read_level is ReadLevel.EXACT

    def test_the_gateways_appended_line_is_refused(self) -> None:
        reply = f"{text_of(ANSWER)}\n\n⚠️ Reply truncated: the model hit its output limit."
        assert fault_of(read_answer, reply).code is Code.TRUNCATED

    def test_an_answer_about_that_line_is_not(self) -> None:
        answer = read_answer(text_of(ANSWER | {"answer": "网关会追加\n⚠️ Reply truncated\n"}))
        assert answer.read_level is ReadLevel.EXACT

    def test_no_prefix_of_a_reply_is_read(self) -> None:
        whole = text_of(ANSWER)
        for end in range(1, len(whole)):
            assert fault_of(read_answer, whole[:end]).code is Code.TRUNCATED, whole[:end]

    def test_no_prefix_of_a_reply_with_bad_quotes_is_read(self) -> None:
        whole = '{"answer": "所谓"热点"是 {"a": 1} 指"写入" }集中。", "knowledgeSufficient": true, "sources": ["a.md"]}'
        for end in range(1, len(whole)):
            assert isinstance(verdict_on(read_answer, whole[:end]), ReplyFault), whole[:end]

    def test_no_prefix_of_a_python_dict_is_read(self) -> None:
        whole = "{'answer': 'it's } here {x}', 'knowledgeSufficient': True, 'sources': [{'path': 'a.md'}]}"
        for end in range(1, len(whole)):
            assert isinstance(verdict_on(read_answer, whole[:end]), ReplyFault), whole[:end]

    def test_no_prefix_of_a_pretty_fenced_reply_is_read(self) -> None:
        whole = json.dumps(SELECTION, ensure_ascii=False, indent=2)
        for end in range(1, len(whole)):
            assert fault_of(read_selection, f"```json\n{whole[:end]}").code is Code.TRUNCATED


class TestWhatIsRefused:
    @pytest.mark.parametrize("reply", ["", " \n", "\ufeff", b""], ids=["empty", "blank", "bom", "bytes"])
    def test_nothing_is_not_an_empty_object(self, reply: str | bytes) -> None:
        assert fault_of(read_answer, reply).code is Code.EMPTY_FILE

    @pytest.mark.parametrize("data", ['{"answer": "中"}'.encode("gbk"), text_of(ANSWER).encode("utf-16")])
    def test_another_encoding_names_the_byte(self, data: bytes) -> None:
        fault = fault_of(read_answer, data, name="answer.json")
        assert fault.code is Code.INVALID_ENCODING
        assert "answer.json" in fault.en
        assert "byte" in fault.en

    def test_the_same_key_twice_names_the_key(self) -> None:
        fault = fault_of(read_answer, '{"answer": "甲", "answer": "乙"}')
        assert (fault.code, "'answer'" in fault.zh) == (Code.DUPLICATE_KEY, True)

    def test_bad_json_names_line_and_column(self) -> None:
        fault = fault_of(read_answer, "我无法完成这个任务。")
        assert fault.code is Code.INVALID_JSON
        assert "line 1 column 1" in fault.en

    @pytest.mark.parametrize(
        ("read", "document", "field"),
        [
            (read_selection, {}, "selectedPages"),
            (read_selection, {"selectedPages": [{"reason": "x"}]}, "selectedPages[0].path"),
            (read_selection, 7, "(root)"),
            (read_answer, {}, "answer"),
            (read_answer, {"answer": 5}, "answer"),
            (read_answer, ["a.md"], "(root)"),
            (read_answer, {"answer": "甲", "knowledgeSufficient": "大概"}, "knowledgeSufficient"),
        ],
    )
    def test_a_wrong_shape_names_the_field(self, read: Callable[..., Any], document: Any, field: str) -> None:
        fault = fault_of(read, text_of(document))
        assert (fault.code, field in fault.en, field in fault.zh) == (Code.SCHEMA, True, True)

    def test_a_fault_becomes_the_jobs_error(self) -> None:
        error = fault_of(read_answer, "").as_error()
        assert (error.code, error.retryable) == (Code.EMPTY_FILE, False)


class TestFixedTables:
    @pytest.mark.parametrize(
        ("given", "meant"), [("false", False), ("否", False), ("no", False), (0, False), ("是", True), (1.0, True)]
    )
    def test_booleans(self, given: Any, meant: bool) -> None:
        answer = read_answer(text_of(ANSWER | {"knowledgeSufficient": given}))
        assert answer.knowledge_sufficient is meant
        assert answer.read_level is ReadLevel.NORMALIZED
        assert [note.field for note in answer.warnings] == ["knowledgeSufficient"]

    @pytest.mark.parametrize(
        ("given", "score"),
        [("1", 1), ("1.0", 1), (1.0, 1), (True, 1), ("0", 0), (5, 0), (0.8, 0), ("高", 0), (None, 0)],
        ids=repr,
    )
    def test_scores_can_never_be_talked_up(self, given: Any, score: int) -> None:
        answer = read_answer(text_of(ANSWER | {"qaEvaluation": {"stability": given, "reason": "x"}}))
        assert answer.qa_evaluation is not None
        assert answer.qa_evaluation.stability == score
        assert answer.read_level is ReadLevel.NORMALIZED

    def test_unclear_judgements_count_against_keeping_the_answer(self) -> None:
        document = ANSWER | {"highValue": "也许", "qaEvaluation": {"attachmentDriven": "部分", "ephemeral": "部分"}}
        answer = read_answer(text_of(document))
        assert answer.qa_evaluation is not None
        assert (answer.high_value, answer.qa_evaluation.attachment_driven, answer.qa_evaluation.ephemeral) == (
            False,
            True,
            True,
        )

    def test_a_stated_total_is_kept_as_it_is_and_not_believed(self) -> None:
        answer = read_answer(text_of(ANSWER | {"qaEvaluation": {"score": 5, "stability": 1, "reason": "好"}}))
        assert answer.qa_evaluation is not None
        assert (answer.qa_evaluation.total, answer.read_level) == (1, ReadLevel.EXACT)
        assert answer.qa_evaluation.document()["score"] == 5

    def test_sources_without_a_path_are_left_out_and_noted(self) -> None:
        answer = read_answer(text_of(ANSWER | {"sources": ["a.md", {"title": "无路径"}, None, {"path": "b.md"}]}))
        assert [source.path for source in answer.sources] == ["a.md", "b.md"]
        assert [note.code for note in answer.warnings] == ["TEXT_AS_OBJECT", "DROPPED", "DROPPED"]

    def test_odd_traces_and_ids_do_not_fail_the_answer(self) -> None:
        trace = {"sourceId": 1, "title": None, "url": ["x"], "extra": 3, "commitHash": 12}
        source = {"path": "a.md", "sourceIds": [1, "s-2", None, True], "sourceTraces": [trace, "x"]}
        answer = read_answer(text_of(ANSWER | {"sources": [source]}))
        assert answer.sources[0].source_ids == (1, "s-2")
        assert [found.commit_hash for found in answer.sources[0].source_traces] == ["12"]

    def test_attachments_by_name_or_number(self) -> None:
        answer = read_answer(text_of(ANSWER | {"usedAttachments": ["慢日志.txt", 7, {"attachmentId": True}]}))
        assert [(a.attachment_id, a.file_name) for a in answer.used_attachments] == [
            (None, "慢日志.txt"),
            (7, ""),
            (None, ""),
        ]

    def test_snake_case_fields_are_read_and_noted(self) -> None:
        selection = read_selection(text_of({"selected_pages": [{"path": "a.md", "expected_use": "x"}]}))
        assert selection.selected_pages[0].expected_use == "x"
        assert [note.code for note in selection.warnings] == ["FIELD_RENAMED", "FIELD_RENAMED"]

    def test_no_token_that_java_cannot_read_is_left(self) -> None:
        evaluation = '{"x": NaN, "y": [1e999], "reason": ""}'
        reply = '{"answer": "\\ud83d 甲", "knowledgeSufficient": true, "qaEvaluation": ' + evaluation + "}"
        answer = read_answer(reply)
        assert answer.answer == "\ufffd 甲"
        assert {note.code for note in answer.warnings} == {"LONE_SURROGATE", "NOT_FINITE"}
        strict_json.loads(strict_json.dumps(answer.document()))

    def test_our_own_file_keeps_its_worse_level(self) -> None:
        document = read_answer(text_of(ANSWER)).model_copy(update={"read_level": ReadLevel.GUESSED}).document()
        assert read_answer(strict_json.dumps(document)).read_level is ReadLevel.GUESSED

    def test_what_we_write_is_read_back_exactly(self) -> None:
        answer = read_answer(text_of(ANSWER))
        assert read_answer(strict_json.dumps(answer.document())) == answer
        selection = read_selection(text_of(SELECTION))
        assert read_selection(strict_json.dumps(selection.document())) == selection


def is_read_or_refused(reply: str | bytes) -> None:
    for read, shape in ((read_selection, PageSelection), (read_answer, Answer)):
        verdict = verdict_on(read, reply)
        if isinstance(verdict, ReplyFault):
            assert verdict.zh
            assert verdict.en
        else:
            assert isinstance(verdict, shape)
            strict_json.loads(strict_json.dumps(verdict.document()))


JSONISH = st.lists(
    st.sampled_from(
        [*"{}[]\",:\\'\n# /*", "//", "```json\n", "<think>", "</think>", '"answer"', '"selectedPages"', "甲"]
    )
    | st.sampled_from(
        ["true", "None", "NaN", "1e999", "\\u", "\\ud83d", "9" * 400, '"path": "a.md"', "⚠️ Reply truncated"]
    ),
    max_size=40,
).map("".join)


class TestWhateverComes:
    @given(st.text())
    @settings(deadline=None)
    def test_any_text(self, reply: str) -> None:
        is_read_or_refused(reply)

    @given(st.binary())
    @settings(deadline=None)
    def test_any_bytes(self, reply: bytes) -> None:
        is_read_or_refused(reply)

    @given(JSONISH)
    @settings(max_examples=500, deadline=None)
    def test_nearly_json(self, reply: str) -> None:
        is_read_or_refused(reply)

    @given(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.sampled_from(
                        ["answer", "sources", "path", "qa", "qaEvaluation", "selectedPages", "usedAttachments", "x"]
                    ),
                    inner,
                    max_size=5,
                )
            ),
            max_leaves=20,
        )
    )
    @settings(max_examples=300, deadline=None)
    def test_any_json(self, document: Any) -> None:
        is_read_or_refused(json.dumps(document))
        if isinstance(document, dict):
            is_read_or_refused(json.dumps(document | {"answer": "甲", "selectedPages": document.get("sources")}))

    @given(st.data())
    @settings(max_examples=200, deadline=None)
    def test_a_strict_reply_with_one_character_changed(self, data: st.DataObject) -> None:
        whole = text_of(ANSWER)
        at = data.draw(st.integers(0, len(whole) - 1))
        is_read_or_refused(
            whole[:at] + data.draw(st.sampled_from(["", '"', "}", "{", "\n", "'", "\\"])) + whole[at + 1 :]
        )

    @pytest.mark.parametrize(
        "hostile",
        [
            "[" * 2_400_000,
            '{"a":' * 700_000,
            '{"a":' * 200 + "1" + "}" * 200,
            "{" * 2_400_000,
            '{"answer": "' + '"' * 2_400_000,
            '{"answer": "' + '\\"' * 1_200_000,
            '{"a": /*' * 400_000,
            "{}" * 1_200_000,
            "{'" * 1_000_000,
            "<think>" * 500_000,
            "</think>\n" * 400_000,
            '{"answer": "' + "x" * 10_000_000 + '"}',
            '{"answer": "' + '所谓"热点"是指，' * 11_000 + '"}',
            '{"answer": ' + "9" * 2_400_000 + "}",
            "{a" * 1_000_000,
            "\n[" * 1_000_000,
            " " * 2_400_000 + "{",
            ("{" + " " * 50) * 60_000,
        ],
        ids=map(str, range(18)),
    )
    def test_hostile_input_ends_soon(self, hostile: str) -> None:
        started = time.process_time()
        verdict_on(read_answer, hostile)
        assert time.process_time() - started < 15  # seconds of CPU; the worst of these takes about 2
