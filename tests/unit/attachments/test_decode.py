"""Bytes to text: what people's programs really write, and no mojibake in any case."""

from __future__ import annotations

import codecs
import random

import pytest

from worker.adapters.attachments.formats.decode import decode
from worker.adapters.attachments.formats.sink import FormatError

SIMPLIFIED = (
    "本季度的系统升级已经完成，数据库备份每天晚上自动执行。请各位同事检查自己的权限设置，如果发现无法登录，"
    "请联系管理员重新分配账号。明天下午三点召开项目评审会议，会议内容包括接口文档、测试报告和上线计划。"
)
TRADITIONAL = (
    "這個系統的設定檔案需要修改，請聯絡管理員以取得權限。資料庫備份每天晚上自動執行，使用者註冊已經完成。"
    "明天下午三點開會，請準備好相關的資料與報告。臺灣的軟體工程師喜歡討論程式語言與開發工具。"
)
JAPANESE = (
    "佐藤太郎さんは昨日、会議の資料を確認しました。ユーザー登録が完了しました。設定を変更するには権限が必要です。"
)
KOREAN = "안녕하세요, 회의 자료를 확인해 주시기 바랍니다. 데이터베이스 백업은 매일 밤 자동으로 실행됩니다."
RUSSIAN = "Система управления базами данных. Пользователь должен подтвердить регистрацию."
GREEK = "Η διαχείριση της βάσης δεδομένων είναι σημαντική για την ομάδα"
HEBREW = "ניהול מסד הנתונים של הארגון"
ARABIC = "مرحبا"
FINNISH = "Vielä pitää perehtyä tähän asiaan. Äänestys päättyy tänään, hän menee työmaalle."
POLISH = "Zażółć gęślą jaźń. Wewnętrzny i społeczny przegląd wydatków został zatwierdzony."
CZECH = "Příliš žluťoučký kůň úpěl ďábelské ódy. Veřejnost se účastní české soutěže."
HUNGARIAN = "A megfelelő szakértői jelentés működéséről a bizottság elnöke számolt be."
TURKISH = "Türkiye nüfusu arttı. Çağrı işlemi başarıyla gerçekleştirildi, değişiklik kaydı yapılmıştır."
FRENCH = "Les élèves français étudient à l'école. Où est le problème? Voilà, à bientôt."

TEXTS = [
    (SIMPLIFIED, "gb18030"), (SIMPLIFIED, "utf-8"), (SIMPLIFIED, "utf-16-le"), (SIMPLIFIED, "utf-16-be"),
    (TRADITIONAL, "big5"), (TRADITIONAL, "gb18030"), (TRADITIONAL, "utf-16-le"), (JAPANESE, "cp932"),
    (JAPANESE, "euc_jp"), (JAPANESE, "iso2022_jp"), (JAPANESE, "utf-16-be"), (KOREAN, "cp949"), (RUSSIAN, "cp1251"),
    (RUSSIAN, "koi8_r"), (SIMPLIFIED, "hz"), (KOREAN, "iso2022_kr"), (GREEK, "cp1253"),
    (FRENCH, "cp1252"), (FRENCH, "utf-16-le"), (HEBREW, "cp1255"), (FINNISH, "latin-1"), (POLISH, "cp1250"),
    (POLISH, "iso8859_2"), (CZECH, "cp1250"), (CZECH, "iso8859_2"), (HUNGARIAN, "cp1250"), (TURKISH, "cp1254"),
    (SIMPLIFIED, "utf-32-le"), (SIMPLIFIED, "utf-32-be"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "codec"), TEXTS)
def test_an_undeclared_text_comes_back_as_it_was(text: str, codec: str) -> None:
    assert decode(text.encode(codec)).text == text


@pytest.mark.parametrize(("text", "codec"), [(SIMPLIFIED, "gb18030"), (TRADITIONAL, "big5")])
def test_at_least_95_of_100_slices_of_60_characters_come_back(text: str, codec: str) -> None:
    rng = random.Random(7)
    starts = [rng.randrange(len(text) - 60) for _ in range(100)]
    right = sum(decode(text[at : at + 60].encode(codec)).text == text[at : at + 60] for at in starts)
    assert right >= 95


@pytest.mark.parametrize(
    ("mark", "codec"),
    [
        (codecs.BOM_UTF8, "utf-8"),
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
        (codecs.BOM_UTF32_LE, "utf-32-le"),
    ],
)
def test_a_byte_order_mark_decides(mark: bytes, codec: str) -> None:
    decoded = decode(mark + SIMPLIFIED.encode(codec))
    assert (decoded.text, decoded.encoding) == (SIMPLIFIED, codec)


def test_a_marked_text_with_a_broken_place_tells_it_and_a_false_mark_is_refused() -> None:
    decoded = decode(codecs.BOM_UTF8 + SIMPLIFIED.encode() + b"\xff" + SIMPLIFIED.encode())
    assert (decoded.text, decoded.dropped) == (SIMPLIFIED * 2, 1)
    with pytest.raises(FormatError):
        decode(codecs.BOM_UTF8 + random.Random(1).randbytes(500))


def test_a_declared_charset_is_believed_in_its_usual_superset() -> None:
    assert decode("镕基堃".encode("gb18030"), "gb2312").text == "镕基堃"
    assert decode("①髙﨑".encode("cp932"), "Shift_JIS").text == "①髙﨑"


@pytest.mark.parametrize(
    ("text", "codec", "declared"),
    [
        (TRADITIONAL, "big5", "gb2312"), (SIMPLIFIED, "gb18030", "big5"), (SIMPLIFIED, "gb18030", "windows-1251"),
        (JAPANESE, "cp932", "big5"), (KOREAN, "cp949", "big5"),
    ],
)  # fmt: skip
def test_a_charset_that_gives_characters_nobody_writes_was_declared_wrongly(
    text: str, codec: str, declared: str
) -> None:
    assert decode(text.encode(codec), declared).text == text


def test_a_declared_latin_charset_is_often_only_a_default_and_unknown_ones_are_ignored() -> None:
    assert decode(SIMPLIFIED.encode("gb18030"), "iso-8859-1").text == SIMPLIFIED
    assert decode(SIMPLIFIED.encode("gb18030"), "x-user-defined").text == SIMPLIFIED
    assert decode(SIMPLIFIED.encode("gb18030"), "utf-16").text == SIMPLIFIED
    assert decode(SIMPLIFIED.encode("utf-8"), "gb2312").text == SIMPLIFIED


@pytest.mark.parametrize(
    ("text", "codec"),
    [
        ("That’s it! And don’t forget.", "cp1252"), ("That’s it!", "cp1252"), ("Größe", "cp1252"),
        ("¿Qué tal, Núñez?", "cp1252"),
        ("C盘空间不足", "gb18030"), ("A类", "gb18030"), ("用B方案", "gb18030"), ("PC版", "big5"),
        ("ビタミンCを", "cp932"),
        ("Tom’s 的计划", "gb18030"), ("admin (系统) log", "gb18030"), ("王", "gb18030"),
        ("ＡＢＣ１２３", "gb18030"), ("氏名,年齢\n山田,3", "cp932"), ("system:\u03f5", "utf-8"),
        ("fix.patch 并根据 DEP-3: Guidelines", "gb18030"), ("25 °C ± 3", "cp1252"),
        ("![图片](./img/1.png)", "gb18030"), ("模式**", "gb18030"), ("Trương", "utf-8"), ("ʃə", "utf-8"),
        ("王磊\n赵鑫\n欧阳修", "gb18030"), ("測試", "big5"), ("Sørensen", "cp1252"),
    ],
)  # fmt: skip
def test_single_signs_in_latin_words_and_single_letters_in_chinese_ones(text: str, codec: str) -> None:
    assert decode(text.encode(codec)).text == text


def test_an_alphabet_that_cannot_be_told_is_refused_rather_than_shown_as_another() -> None:
    with pytest.raises(FormatError):
        decode(ARABIC.encode("cp1256"))
    assert decode(b"a home directory ~{ and ~} in plain English").encoding == "utf-8"


def test_a_few_characters_that_two_codecs_explain_are_shown_as_a_guess() -> None:
    assert decode("代刚".encode("gb18030")).uncertain
    assert not decode("系统设置".encode("gb18030")).uncertain
    assert not decode(SIMPLIFIED.encode("gb18030")).uncertain


def test_a_text_cut_inside_a_character_loses_only_that_character() -> None:
    for codec in ("utf-8", "gb18030"):
        data = SIMPLIFIED.encode(codec)[:-1]
        assert decode(data, cut=True).text == SIMPLIFIED[:-1]


def test_a_late_first_accent_after_much_ascii_does_not_break_the_text() -> None:
    assert decode(b"x" * 5000 + "中文".encode()).text.endswith("中文")
    assert decode(b"plain text here " * 3000 + SIMPLIFIED.encode("gb18030")).text.endswith(SIMPLIFIED)


def test_a_few_broken_places_in_utf8_are_left_out_and_told() -> None:
    decoded = decode(SIMPLIFIED.encode() + b"\xff" + SIMPLIFIED.encode())
    assert decoded.text == SIMPLIFIED * 2
    assert decoded.dropped == 1
    assert decoded.facts() == {"encoding": "utf-8", "undecodableBytes": 1}


def test_stray_zero_bytes_do_not_make_a_text_binary() -> None:
    assert SIMPLIFIED in decode(SIMPLIFIED.encode() + b"\0\0").text
    assert decode(b"name\0 value of some length\0 and more\n" * 50).text.count("\0") == 100
    with pytest.raises(FormatError):
        decode(b"\0" * 1000)


def test_a_mostly_ascii_text_with_one_odd_byte_is_shown_and_marked_as_uncertain() -> None:
    decoded = decode(b"temperature limit: 40 \xb0C / 104 \xb0F, see the manual for details")
    assert "40 °C" in decoded.text


@pytest.mark.parametrize("length", [64, 1000, 20_000])
def test_random_bytes_are_never_text(length: int) -> None:
    for seed in range(30):
        with pytest.raises(FormatError) as caught:
            decode(random.Random(seed).randbytes(length))
        assert caught.value.code == "BINARY_FILE"
