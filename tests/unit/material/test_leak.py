"""The leak check: names, lines, props and sentences of a card, however dressed up; the team's own words stay."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.knowledge.leak import Forbidden, forbidden_in, leaks, listed
from tasks.knowledge.material import card_number
from tasks.knowledge.question import plain
from tests.fakes_material import CARD, TRANSFER, rules

LABELS = rules().labels
FORBIDDEN = forbidden_in(CARD, LABELS)
FREE_TEXT = (
    "老梁端着搪瓷缸走进车间，小蔡说：“图纸我画了三遍。”张工把扳手一放，没有接话。"
    "顾客都围了上来，阿珍问了一句“到底谁的错”。"
)


def kinds(text: str, *, own: str = "", forbidden: Forbidden = FORBIDDEN) -> list[str]:
    return [leak.kind for leak in leaks([text], forbidden, own=[own])]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("周铁锅站在门口", "人物"),
        ("周 铁 锅站在门口", "人物"),
        ("周\u200b铁锅", "人物"),
        ("摊主抬头看了一眼", "人物"),
        ("贺总走了", "人物"),
        ("也配谈火候", "台词"),
        ("你锅都没热透", "台词"),
        ("你、锅、都、没、热、透", "台词"),
        ("他举起豁口铁锅", "道具"),
        ("倒了半瓶老抽", "道具"),
        ("铁锅师傅没有回嘴", "人物"),
        ("周师傅没有回嘴", "人物"),
        ("小周没有回嘴", "人物"),
        ("贺老板走了", "人物"),
        ("他掂了掂铁锅", "道具"),
        ("老抽淋下去", "道具"),
        ("先给围观者的脸再落到别处", "原句"),
        ("不吵不闹把对方的外行话", "原句"),
    ],
)
def test_what_of_the_card_is_found(text: str, kind: str) -> None:
    assert kind in kinds(text)


def test_a_clean_transfer_passes_field_by_field() -> None:
    assert not [kinds(value) for value in TRANSFER.values() if kinds(value)]


@pytest.mark.parametrize("word", ["老梁", "小蔡", "张工", "图纸我画了三遍", "到底谁的错", "阿珍"])
def test_free_text_tells_its_people_and_lines_too(word: str) -> None:
    assert kinds(f"然后{word}。", forbidden=forbidden_in(FREE_TEXT, LABELS))


def test_a_common_noun_that_looks_like_a_name_is_none() -> None:
    assert not kinds("顾客回头了", forbidden=forbidden_in("顾客说不要了，转身就走。", LABELS))


@pytest.mark.parametrize(
    ("prop", "text"), [("三本旧相册", "他翻开旧相册"), ("保温杯", "杯子空了"), ("一把伞", "下雨了")]
)
def test_only_the_thing_itself_counts(prop: str, text: str) -> None:
    found = kinds(text, forbidden=forbidden_in(f"道具：{prop}", LABELS))

    assert found == (["道具"] if "相册" in prop else [])


def test_the_nodes_own_words_are_free() -> None:
    assert not kinds("贺总的豁口铁锅", own="账号人物贺总，招牌是豁口铁锅")
    assert "道具" in kinds("贺总的豁口铁锅", own="账号人物贺总")


def test_what_the_model_lists_counts_as_well() -> None:
    more = listed(["船长"], ["往左三十度"], ["罗盘"])
    assert kinds("船长看着罗盘说往左三十度", forbidden=more) == ["人物", "台词", "道具"]


BOXED = "【编号】28-1【人物】厂长、质检员【原话】“扭矩标错了，第三页。”【道具】红皮图纸【铺垫】中【镜头】手部特写"


@pytest.mark.parametrize("word", ["厂长", "质检员", "扭矩标错了", "红皮图纸"])
def test_labels_in_boxes_tell_as_much(word: str) -> None:
    assert kinds(f"这时{word}出现", forbidden=forbidden_in(BOXED, LABELS))


def test_number_and_set_up_are_read_from_boxes_and_lines() -> None:
    assert (LABELS.values(BOXED, "number"), LABELS.values(BOXED, "setup")) == (["28-1"], ["中"])
    assert (LABELS.values(CARD, "number"), LABELS.values(CARD, "setup")) == (["28325-3"], ["短"])


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        ("28325-3", "28325-3"),
        ("极致素材A-07", "极致素材A-07"),
        ("老梁拍桌子骂人不干了", "卡x"),
        ("周铁锅的豁口铁锅1", "卡x"),
    ],
)
def test_a_sentence_in_the_place_of_a_number_is_not_shown(told: str, shown: str) -> None:
    assert card_number(f"编号：{told}\n内容含义：……\n", LABELS, "卡x") == shown


@given(st.data())
def test_no_eight_characters_of_a_card_pass(data: st.DataObject) -> None:
    body = plain(CARD)
    start = data.draw(st.integers(0, len(body) - 8))
    piece = body[start : start + 8]
    dressed = data.draw(st.sampled_from(["", " ", "，", "\u200b", "-"])).join(piece)
    assert kinds(f"前文{dressed}后文")


def test_a_technique_that_is_meant_to_be_kept_is_no_quote() -> None:
    card = CARD + "手法类别：预期反转·道具误导法\n"
    found = leaks(["预期反转·道具误导法"], forbidden_in(card, LABELS), own=[], kept=LABELS.values(card, "technique"))
    assert not found
