"""How ordinary the characters are that a codec makes of some bytes: wrong codecs give rare ones. Decides nothing."""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Callable
from functools import cache

FREQUENT = frozenset(
    "的一是不了在人有我他这个们中来上大为和国地到以说时要就出会可也你对生能而子那得于着下自之年过发后作里用道行所然家"
    "种事成方多经么去法学如都同现当没动面起看定天分还进好小部其些主样理心她本前开但因只从想实日者意无力它与长把机十民"
    "第公此已工使情明性知全三又关点正业外将两高间由问很最重并物手应向头文体政美相见被利什二等产或新己制身果加西月话合"
    "回特代内信表化老给世位次度门任常先海通教儿原东声提立及比员解水名真论处走义各入几口认条平系气题活更别打女变四神总"
    "何电数安少报才结反受目太量再感建务做接必场件计管期市直资命山金指许统区保至队形社便空决治展科司五基书非则界达光放"
    "强即像难且权思完设式色路记南品住告类求据程北边张该交规万取格望术领共确传师观清今切院让识候带导争运请求查收附件服"
    "务配置接口数据文档项目用户系统问题测试版本返回错误代码函数对象组件参数方法类型更新需要可以如果使用进行"
    "這個們來為國說時會對過發後裡種經麼學現當沒動還進樣開從實無與長機問關點業將兩間應頭體見產話給門東聲員論處義條氣題"
    "變電數報結務場計許統區隊決書則達強難權設記類據邊張該規萬術領確傳師觀讓識帶導爭運請網維資證華語言創內於並級測試檔項錯誤碼軟"
    "李王张刘陈杨赵黄周吴徐孙马朱胡郭林罗郑梁谢宋唐许韩冯邓曹彭曾肖田董潘袁蔡蒋余杜叶魏苏吕丁卢姚沈钟姜崔谭陆范汪廖石韦贾"
    "夏邹熊孟秦邱侯尹薛段雷龙黎史陶贺毛郝顾龚邵钱戴严欧莫孔伟芳敏静丽勇艳杰娟涛超秀霞磊鑫娜欣宇浩婷雪玲红军斌鹏辉"
    "陳黃張吳劉楊許鄭謝賴蘇葉莊呂蕭羅怡君豪雅宗翰"
)
"""The characters that make up most of any Chinese text, simplified and traditional, and of lists of people."""
_FREQUENT_KOREAN = frozenset(
    "이다는에의을를가하고로은지어인한기도사리대시자정해라나서과구보수여주일부아제원동전성상장안모공국스그면들게적유용계학생문"
    "오연것소만된있없할했되니와거신조관비우요세회무후중금경간방으선내데물외체명교분치위실미터력드려트단진발습행번업개반결재년월호"
    "녕십까확파료백매밤점"
)
_PUNCTUATION = frozenset("，。、：；！？（）《》“”‘’「」『』【】…—·～　") | {
    chr(code) for code in range(0xFF01, 0xFF5F)
}

_USED = re.compile(
    "[\xa0-\u017f\u01a0\u01a1\u01af\u01b0\u02bb\u02bc\u0300-\u036f\u0386-\u03ce\u0400-\u04ff\u05d0-\u05ea\u0600-\u06ff]"
)
"""Below U+0800, what people write: Latin, Greek, Cyrillic, Hebrew and Arabic letters and the signs beside them."""
_MOST_BY_CHANCE = 8
_COMMON_ROWS = {
    "gb2312": (range(0xB0, 0xD8), (range(0xA1, 0xFF),)),
    "big5": (range(0xA4, 0xC7), (range(0x40, 0x7F), range(0xA1, 0xFF))),
    "euc_jp": (range(0xB0, 0xD0), (range(0xA1, 0xFF),)),
    "euc_kr": (range(0xB0, 0xC9), (range(0xA1, 0xFF),)),
}
"""Lead and trail bytes of the common characters: these standards sort them before the rare ones."""


@cache
def _common(codec: str) -> frozenset[str]:
    leads, trails = _COMMON_ROWS[codec]
    raw = b"".join(bytes((lead, trail)) for lead in leads for part in trails for trail in part)
    return frozenset(raw.decode(codec, "ignore"))


def strict(data: bytes, name: str, *, cut: bool) -> str | None:
    """The text when every byte fits the codec; ``cut``: the last character may be incomplete."""
    try:
        return codecs.getincrementaldecoder(name)("strict").decode(data, not cut)
    except (UnicodeError, LookupError):
        return None


def is_ordinary(char: str) -> bool:
    """Whether people write such characters every day."""
    return (
        " " <= char <= "~"
        or char in "\t\n\r"
        or char in FREQUENT
        or char in _PUNCTUATION
        or "\u3041" <= char <= "\u30fc"
        or "\u0400" <= char <= "\u045f"
        or char in _common("euc_kr")
    )


def is_utf8_by_chance(data: bytes, text: str) -> bool:
    """Whether ``text`` is UTF-8 only because a few GBK bytes look like it: 图片 gives two letters nobody writes."""
    foreign = {char for char in text if char > "\x7f"}
    if not 2 <= len(foreign) <= _MOST_BY_CHANCE or max(foreign) >= "\u0800" or all(map(_USED.match, foreign)):
        return False
    chinese = strict(data, "gb18030", cut=True)
    return chinese is not None and all(char <= "\x7f" or char in _common("gb2312") for char in chinese)


def ranked_codecs(sample: bytes) -> list[tuple[float, str]]:
    """Codecs that fit, best first, by how ordinary their characters are (about 1 for real text, below 0 for wrong)."""
    scores = []
    for name, score in _SCORERS.items():
        text = _decoded_sample(sample, name)
        if text is None:
            continue
        foreign = [char for char in text if char > "\x7f"]
        if foreign:
            lonely = len(_LONELY.findall(text)) if name in _DOUBLE_BYTE else 0
            share = (score(text, foreign) - _LONELY_COSTS * lonely) / len(foreign)
            scores.append((share * _LESS_USED if name in _LESS_USED_LATIN else share, name))
    return sorted(scores, reverse=True)


def _decoded_sample(sample: bytes, name: str) -> str | None:
    text = strict(sample, name, cut=True)
    if text is None:
        text = sample.decode(name, "replace")
        if text.count("\ufffd") > len(text) * 0.002:
            return None
    return text


def _score_gb(_text: str, foreign: list[str]) -> float:
    common = _common("gb2312")
    return sum(_ideograph(char, common) for char in foreign)


def _score_big5(_text: str, foreign: list[str]) -> float:
    common = _common("big5")
    return sum(_ideograph(char, common) for char in foreign)


def _ideograph(char: str, common: frozenset[str]) -> float:
    if char in FREQUENT:
        return 1.6
    if char in common:
        return 0.4
    if char in _PUNCTUATION:
        return 1.0
    if "\u3041" <= char <= "\u30f6":
        return 0.2
    return -1.2


def _score_japanese(_text: str, foreign: list[str]) -> float:
    total = 0.0
    common = _common("euc_jp")
    kanji = 0.7 if any("\u3041" <= char <= "\u30f6" for char in foreign) else 0.35  # without kana it is Chinese first
    for char in foreign:
        if "\u3041" <= char <= "\u30f6" or char == "ー":
            total += 1.6
        elif char in common:
            total += kanji
        elif char in _PUNCTUATION:
            total += 1.0
        else:  # half-width kana are what Chinese bytes look like in Shift-JIS
            total -= 1.0
    return total


def _score_korean(_text: str, foreign: list[str]) -> float:
    """The standard sorts its syllables by the alphabet: that one is in it says little, any two bytes may be."""
    common = _common("euc_kr")
    total = 0.0
    for char in foreign:
        if char in _FREQUENT_KOREAN:
            total += 1.6
        elif char in common:
            total += 0.4
        else:
            total += 0.6 if char in _PUNCTUATION else -1.0
    return total


def _latin(alphabets: str, least: int = 1) -> Callable[[str, list[str]], float]:
    """How well the text is one of the languages whose accented letters ``alphabets`` lists, a word for each.

    Fewer than ``least`` of them say nothing: two of Big5's characters look like Polish.
    """

    def score(text: str, foreign: list[str]) -> float:
        if len(foreign) < least:
            return -2.0 * len(foreign)
        words, others = _latin_runs(text)
        return others + max(_score_words(words, letters) for letters in alphabets.split())

    return score


def _latin_runs(text: str) -> tuple[Counter[tuple[str, bool]], float]:
    """Runs that may be accented letters, with whether they join plain ones, and what all the others are worth."""
    words: Counter[tuple[str, bool]] = Counter()
    others = 0.0
    for match in _FOREIGN_RUN.finditer(text):
        run = match.group()
        if len(run) == 1 and run in _LATIN_SYMBOLS and not run.isalpha():
            others += 0.6
        elif len(run) > _LONGEST_RUN or not run.isalpha():
            others -= len(run)
        else:
            words[run, _joins_plain_letters(text, match)] += 1
    return words, others


def _score_words(words: Counter[tuple[str, bool]], letters: str) -> float:
    """Accented letters stand between plain ones, and a language has but a few: others are most likely another codec."""
    total = 0.0
    for (run, joined), times in words.items():
        own = all(char in letters or char.lower() in letters for char in run)
        if len(run) == 1:
            total += times * (1.1 if joined else 0.5) * (1.0 if own else 0.5)
        elif own and (joined or run.islower()):
            total += times * 0.5 * len(run)
        else:
            total -= times * len(run)
    return total


def _joins_plain_letters(text: str, run: re.Match[str]) -> bool:
    """Whether a run of foreign characters is part of a word with plain letters."""
    around = text[run.start() - 1 : run.start()] + text[run.end() : run.end() + 1]
    return any(char.isalpha() for char in around)


def _score_cyrillic(text: str, foreign: list[str]) -> float:
    """The wrong Cyrillic code page turns small letters into capitals or symbols, a Latin one gives mixed words."""
    total = 0.0
    for match in _FOREIGN_RUN.finditer(text):
        if _joins_plain_letters(text, match):
            total -= len(match.group())
            continue
        for position, char in enumerate(match.group()):
            if char in "оеаинтсрвлкмдпуяы":
                total += 1.1
            elif "а" <= char <= "ё" or ("А" <= char <= "Я" and position == 0):
                total += 0.3
            else:
                total -= 1.2
    return total if len(foreign) > 3 else -2.0 * len(foreign)


def _score_hebrew(text: str, foreign: list[str]) -> float:
    """Five letters have a form of their own at a word's end, and stand nowhere else."""
    total = 0.0
    for match in _FOREIGN_RUN.finditer(text):
        word = match.group()
        if _joins_plain_letters(text, match):
            total -= len(word)
            continue
        for position, char in enumerate(word, start=1):
            if not "\u05d0" <= char <= "\u05ea" or (char in "ךםןףץ" and position < len(word)):
                total -= 1.2
            else:
                total += 1.2 if char in "יוהלאמםתברשנן" else 0.5
    return total if len(foreign) > 3 else -2.0 * len(foreign)


_DOUBLE_BYTE = frozenset({"gb18030", "cp950", "big5hkscs", "cp932", "euc_jp", "cp949"})
_LONELY = re.compile(r"(?<=[a-zA-Z])[^\x00-\x7f](?![^\x00-\x7f])|(?<![^\x00-\x7f])[^\x00-\x7f](?=[a-zA-Z])")
"""One character that clings to a Latin word: ``That痴`` is ``That’s`` in CP1252, though ``C盘`` is real."""
_LONELY_COSTS = 0.5
_FOREIGN_RUN = re.compile(r"[^\x00-\x7f]+")
_LONGEST_RUN = 4
_WESTERN = "àâçéèêëîïôœæùûüÿ äöüßéà áéíóúñüªº áâãàçéêíóôõúü àèéìíîòóùú åäöéü åæøéöäü áðéíóúýþæö"
"""French, German, Spanish, Portuguese, Italian, Swedish and Finnish, Danish and Norwegian, Icelandic."""
_CENTRAL = "áéíóöőúüű ąćęłńóśźż áčďéěíňóřšťúůýžľĺŕäô čćđšž ăâîşţ"
"""Hungarian, Polish, Czech and Slovak, Croatian and Slovene, Romanian."""
_TURKISH = "çğıöşüİâî"
_LESS_USED_LATIN, _LESS_USED = frozenset({"cp1250", "iso8859_2", "cp1254"}), 0.98
"""Where the bytes mean the same in several codecs, the most common one is named."""
_LATIN_SYMBOLS = "¿¡–—‘’“”•…€£§°±²³µ½×©®™«»·\xa0"
_SCORERS = {
    "gb18030": _score_gb,
    "cp950": _score_big5,
    "big5hkscs": _score_big5,
    "cp932": _score_japanese,
    "euc_jp": _score_japanese,
    "cp949": _score_korean,
    "cp1252": _latin(_WESTERN),
    "cp1250": _latin(_CENTRAL, least=4),
    "iso8859_2": _latin(_CENTRAL, least=4),
    "cp1254": _latin(_TURKISH, least=4),
    "cp1251": _score_cyrillic,
    "koi8_r": _score_cyrillic,
    "cp1255": _score_hebrew,
}
