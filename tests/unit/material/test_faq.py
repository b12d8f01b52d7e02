"""FAQ cards before they are sent: reading, checks, batches, and what a verification counts."""

from __future__ import annotations

import json

import pytest

from tasks.knowledge.faq import (
    Asked,
    FaqCard,
    batches_of,
    not_there,
    presence,
    problems_with,
    verification,
)
from tasks.knowledge.faq_files import CardFileError, read_cards

MARKDOWN = """# 批次一

## 28325-3
标准问：被当场刁难的人怎么反击
相似问：
- 摊主被刁难
- 对方挑刺怎么办
反例问：价格多少

编号：28325-3
- 内容含义：用专业细节反击

## 找一条夜市的素材
夜市的答案
"""


def card(question: str, *answers: str, **more: tuple[str, ...]) -> FaqCard:
    return FaqCard(question, answers or ("答案",), place=f"f#{question}", **more)  # type: ignore[arg-type]


def test_markdown_cards_keep_their_whole_text_as_the_answer() -> None:
    first, second = read_cards("a.md", MARKDOWN)
    assert first.question == "被当场刁难的人怎么反击"
    assert first.similar == ("摊主被刁难", "对方挑刺怎么办")
    assert first.negative == ("价格多少",)
    assert first.answers == ("编号：28325-3\n- 内容含义：用专业细节反击",)
    assert (second.question, second.answers, second.place) == ("找一条夜市的素材", ("夜市的答案",), "a.md:13")


def test_a_comment_in_a_code_block_ends_no_card() -> None:
    code = "```sh\n# 先备份\n### 再执行\n~~~\nmake\n```\n最后一步"
    [found] = read_cards("a.md", f"# 批次\n\n## 怎么部署\n照着做：\n{code}\n")
    assert found.answers == (f"照着做：\n{code}",)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.yaml", "cards:\n- standard_question: 问\n  answers: [答]\n  similar_questions: [似]\n"),
        ("a.json", '[{"question": "问", "answer": "答", "similar": ["似"]}]'),
        ("a.jsonl", '{"标准问": "问", "答案": ["答"], "相似问": ["似"]}\n\n'),
    ],
)
def test_the_same_card_in_other_formats(name: str, text: str) -> None:
    [found] = read_cards(name, text)
    assert (found.question, found.answers, found.similar) == ("问", ("答",), ("似",))


@pytest.mark.parametrize(
    ("name", "text"),
    [("a.md", "没有标题"), ("a.txt", "x"), ("a.json", "{"), ("a.yaml", "a: 1"), ("a.yaml", "- [1"), ("a.jsonl", "[]")],
)
def test_a_file_without_cards_is_named(name: str, text: str) -> None:
    with pytest.raises(CardFileError, match=name):
        read_cards(name, text)


@pytest.mark.parametrize(
    ("cards", "part"),
    [
        ([FaqCard("", ("a",))], "no standard question"),
        ([FaqCard("问", ())], "no answer"),
        ([FaqCard("问", ("  ",))], "no answer"),
        ([card("问"), card("问？")], "already one of"),
        ([card("问"), card("别的", similar=("问",))], "already one of"),
        ([card("问", negative=("问",))], "negative"),
        ([card("问", similar=("问",))], "standard question again"),
        ([FaqCard("问", ("a",), strategy="best")], "answer_strategy"),
    ],
)
def test_what_the_server_would_merge_or_drop_is_told_before(cards: list[FaqCard], part: str) -> None:
    [problem] = problems_with(cards)
    assert part in problem.text
    assert problem.fatal


def test_the_base_is_looked_at_too() -> None:
    existing = [card("同").entry(), card("异", "旧").entry()]
    problems = problems_with([card("同"), card("异", "新"), card("新")], existing)
    assert [(p.place, p.fatal) for p in problems] == [("f#同", False), ("f#异", True)]
    assert [e["standard_question"] for e in not_there([card("同").entry(), card("新").entry()], existing)] == ["新"]


@pytest.mark.parametrize("new", [card("另一问"), card("新", similar=("另一问？",)), card("新", similar=("在库",))])
def test_a_question_of_another_entry_of_the_base_would_be_dropped_in_silence(new: FaqCard) -> None:
    [problem] = problems_with([new], [card("在库", similar=("另一问",)).entry()])
    assert problem.fatal
    assert "another entry of the base" in problem.text
    assert (
        problems_with([card("在库", similar=("另一问",))], [card("在库", similar=("另一问",)).entry()])[0].fatal
        is False
    )


def test_a_card_that_has_more_questions_than_its_entry_is_left_out_but_not_in_silence() -> None:
    [problem] = problems_with([card("同", similar=("新的问法",))], [card("同").entry()])
    assert not problem.fatal
    assert "without some of its questions, left out" in problem.text


def test_batches_are_small_and_their_ids_are_those_of_the_cards() -> None:
    entries = [card(f"问{n}").entry() for n in range(450)]
    batches = batches_of(entries, "库", "append")
    assert [len(batch.entries) for batch in batches] == [200, 200, 50]
    assert [b.task_id for b in batches] == [b.task_id for b in batches_of(entries, "库", "append")]
    assert batches[0].task_id != batches_of(entries, "别的库", "append")[0].task_id
    assert len({batch.task_id for batch in batches}) == 3
    assert json.dumps(batches[0].entries)


def test_presence_counts_each_card() -> None:
    entries = [card(name).entry() for name in ("在", "缺", "重", "改")]
    existing = [card("在").entry(), card("重").entry(), card("重").entry(), card("改", "别的").entry()]
    state = presence(entries, existing)
    assert (state.missing, state.twice, state.changed) == (("缺",), ("重",), ("改",))
    assert not state.complete
    assert presence(entries[:1], existing).complete


def test_a_card_without_some_of_its_questions_is_not_complete() -> None:
    whole = card("问", similar=("似一", "似二"), negative=("反",)).entry()
    for lost in ({"similar_questions": ["似一"]}, {"negative_questions": []}, {"similar_questions": None}):
        assert presence([whole], [{**whole, **lost}]).partly == ("问",)
    more = {**whole, "similar_questions": ["似二？", "似一", "早就在的"]}
    assert presence([whole], [more]).complete, "a base may know more questions than the card"


def test_verification_counts_ranks_zero_hits_and_magnets() -> None:
    asked = [
        *[Asked(f"q{n}", f"q{n}", ("磁铁", f"q{n}"), (0.9, 0.8)) for n in range(4)],
        Asked("a", "a", ("a",), (0.7,)),
        Asked("b", "b", ()),
    ]
    found = verification(asked)
    assert found.hit_at_1 == pytest.approx(1 / 6)
    assert found.hit_at_3 == pytest.approx(5 / 6)
    assert found.zero_hits == pytest.approx(1 / 6)
    assert found.magnets == (("磁铁", 4),)
