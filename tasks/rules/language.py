"""In which language an answer is due, and how that language says what our rules need; must not translate anything.

Chinese unless the question asks for another language (CONTRACT §4.4): by an explicit request, or by being written in
it altogether. Code, paths, addresses and identifiers are no language.
"""

from __future__ import annotations

import re

from tasks.rules.wordings import CHINESE, OTHER

_NAMES = {
    "zh": "中文|汉语|chinese|mandarin",
    "en": "英文|英语|english|英語|영어",
    "ja": "日文|日语|japanese|日本語|일본어",
    "ko": "韩文|韩语|korean|한국어|韓国語",
    "fr": "法文|法语|french|français",
    "de": "德文|德语|german|deutsch",
    "es": "西班牙文|西班牙语|西语|spanish|español",
    "ru": "俄文|俄语|russian|русском",
    OTHER: "葡萄牙语|葡萄牙文|意大利语|意大利文|阿拉伯语|阿拉伯文|泰语|泰文|越南语|越南文|"
    "portuguese|italian|arabic|thai|vietnamese",
}
_ANY = "|".join(_NAMES.values())
_ANSWER_ZH = "回答|作答|答复|回复|答|写|说明|解释|总结|输出|介绍|描述|列出|给出"
_REQUESTS = (
    re.compile(rf"(?:用|以|使用|请用|改用)\s*(?P<name>{_ANY})[^，。！？\n]{{0,6}}?(?:{_ANSWER_ZH})", re.IGNORECASE),
    re.compile(
        rf"(?:{_ANSWER_ZH})[^，。！？\n]{{0,6}}?(?:用|以|使用)\s*(?P<name>{_ANY})(?:吧|即可|。|！|$|，)", re.IGNORECASE
    ),
    re.compile(rf"(?P<name>{_ANY})(?:{_ANSWER_ZH})(?!案)", re.IGNORECASE),
    re.compile(
        rf"\b(?:answer|reply|respond|write|explain|summari[sz]e|describe)\b[^.!?\n]{{0,40}}?\bin\s+(?P<name>{_ANY})\b",
        re.IGNORECASE,
    ),
    re.compile(rf"\bin (?P<name>{_ANY})(?:,? please|[.!]?\s*\Z)", re.IGNORECASE),
    re.compile(r"(?P<name>日本語|英語|中国語|韓国語)で"),
    re.compile(r"(?P<name>한국어|영어|일본어)로"),
    re.compile(r"\b(?:en (?P<fr>français)|auf (?P<de>Deutsch)|en (?P<es>español)|на (?P<ru>русском))", re.IGNORECASE),
)
# "不要用英文回答", "如何让模型用英文回答", "用英文回答的配置": talk about a language, no request for it
_NO_REQUEST_BEFORE = re.compile(
    r"(?:不要|不用|别|勿|无需|不必|not|n't|让|使得|要求|导致|为什么|为何|是否|会)[^，。！？,.!?\n]{0,12}\Z",
    re.IGNORECASE,
)
_NO_REQUEST_AFTER = re.compile(r"\s*(?:的(?!话)|时|功能|模式|接口|配置)")
_QUOTED = re.compile(r"“[^“”]*”|「[^「」]*」|\"[^\"\n]*\"|‘[^‘’]*’|『[^『』]*』")
_NO_PROSE = re.compile(
    r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)|`[^`\n]*`|https?://[!-~]+|"
    # paths and identifiers: joined by . _ / \ -, with digits, camelCase or in capitals; starts only at a word's start
    r"(?<![A-Za-z0-9_])(?:(?<!-)[A-Za-z0-9-]+(?:[._/\\]+[A-Za-z0-9_-]+)+|[A-Za-z]*\d[A-Za-z0-9]*|[a-z]+[A-Z][A-Za-z0-9]*|"
    r"[A-Z]{2,}s?(?![a-z]))",
    re.DOTALL,
)
_HAN = re.compile(r"[\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_KANA = re.compile(r"[\u3041-\u30fa\u30fc-\u30ff]")
_HANGUL = re.compile(r"[\uac00-\ud7a3\u1100-\u11ff]")
_CYRILLIC = re.compile(r"[\u0400-\u04ff]")
_FOREIGN = re.compile(r"[\u0370-\u03ff\u0590-\u06ff\u0900-\u0dff\u0e00-\u0e7f]")
_WORD = re.compile(r"[A-Za-zÀ-ÿ]+(?:['’][a-z]+)?")
_STOP_WORDS = {
    "en": "the a an is are was do does did how what why when where which who can could should to of in for on with and "
    "or not it this that from by if i we you my our there be as at between vs please",
    "fr": "le la les un une des est sont comment quel quelle pourquoi quand où qui peut de du et ou pas pour dans avec "
    "je nous vous que ce cette sur il elle en au aux",
    "de": "der die das ein eine ist sind wie was warum wann wo welche wer kann und oder nicht für in mit auf ich wir "
    "sie den dem des zu von es man wird bei",
    "es": "el la los las un una es son cómo como qué cuál por cuando dónde quién puede de y o no para en con se que "
    "lo del al este esta hay",
}
_STOPS = {name: frozenset(words.split()) for name, words in _STOP_WORDS.items()}
_REACH = 40
_MIN_WORDS = 3
_MIN_PROSE = 40
_MIN_HAN_SHARE = 0.3


def due_language(question: str) -> str:
    """``zh``, another key of :data:`~tasks.rules.wordings.WORDINGS`, or ``other``."""
    return _requested(question) or _written_in(question)


def is_mainly_chinese(text: str) -> bool:
    """Whether the prose of ``text`` is Chinese; a text with hardly any prose (a table of names, code) is not judged.

    Han characters are counted against the words and letters of other languages.
    """
    prose = _NO_PROSE.sub(" ", text)
    han, kana = len(_HAN.findall(prose)), len(_KANA.findall(prose))
    foreign = kana + sum(len(pattern.findall(prose)) for pattern in (_HANGUL, _CYRILLIC, _FOREIGN))
    foreign += len(_WORD.findall(prose))
    if han + foreign < _MIN_PROSE:
        return True
    return han / (han + foreign) >= _MIN_HAN_SHARE and kana < han


def _requested(question: str) -> str | None:
    plain = _QUOTED.sub(lambda found: " " * len(found[0]), question)
    for pattern in _REQUESTS:
        for found in pattern.finditer(plain):
            if _NO_REQUEST_BEFORE.search(
                plain[max(0, found.start() - _REACH) : found.start()]
            ) or _NO_REQUEST_AFTER.match(plain, found.end()):
                continue
            groups = found.groupdict()
            if name := groups.get("name"):
                return next(code for code, names in _NAMES.items() if name.lower() in names.split("|"))
            return next(code for code, text in groups.items() if text)
    return None


def _written_in(question: str) -> str:
    """The language of a question that has no Chinese sentence in it at all."""
    prose = _NO_PROSE.sub(" ", question)
    han, kana = len(_HAN.findall(prose)), len(_KANA.findall(prose))
    if kana >= 2 and kana * 4 >= han:
        return "ja"
    if han:
        return CHINESE
    for code, script in (("ko", _HANGUL), ("ru", _CYRILLIC), (OTHER, _FOREIGN)):
        if len(script.findall(prose)) >= _MIN_WORDS:
            return code
    return _latin([word.lower() for word in _WORD.findall(prose)])


def _latin(words: list[str]) -> str:
    if len(words) < _MIN_WORDS:
        return CHINESE
    counts = {code: sum(word in stops for word in words) for code, stops in _STOPS.items()}
    best = max(counts, key=lambda code: counts[code])
    return best if counts[best] else CHINESE
