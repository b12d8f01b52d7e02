"""Bytes of unknown encoding to text: byte order marks, strict UTF-8, what is declared, then scores; never by replacing.

Undeclared Chinese, Japanese and Korean text is told apart by how common the characters are that each codec yields:
wrong codecs give rare ideographs. Short texts are what people send, and there this beats statistical detectors.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass
from functools import cache

from worker.adapters.attachments.formats.sink import FormatError

_SAMPLE = 16_384
_ALIASES = {
    "gb2312": "gb18030", "gbk": "gb18030", "cp936": "gb18030", "x-gbk": "gb18030", "gb_2312-80": "gb18030",
    "hz-gb-2312": "hz", "big5": "big5hkscs", "cn-big5": "big5hkscs", "x-x-big5": "big5hkscs", "cp950": "cp950",
    "shift_jis": "cp932", "sjis": "cp932", "shift-jis": "cp932", "x-sjis": "cp932", "windows-31j": "cp932",
    "euc-kr": "cp949", "ks_c_5601-1987": "cp949", "iso-8859-1": "cp1252", "latin-1": "cp1252", "latin1": "cp1252",
    "us-ascii": "cp1252", "ascii": "cp1252", "iso-8859-8-i": "iso-8859-8", "utf8": "utf-8", "unicode": "utf-16",
}  # fmt: skip
_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# the characters that make up most of any Chinese text, simplified and traditional
_FREQUENT = frozenset(
    "的一是不了在人有我他这个们中来上大为和国地到以说时要就出会可也你对生能而子那得于着下自之年过发后作里用道行所然家"
    "种事成方多经么去法学如都同现当没动面起看定天分还进好小部其些主样理心她本前开但因只从想实日者意无力它与长把机十民"
    "第公此已工使情明性知全三又关点正业外将两高间由问很最重并物手应向头文体政美相见被利什二等产或新己制身果加西月话合"
    "回特代内信表化老给世位次度门任常先海通教儿原东声提立及比员解水名真论处走义各入几口认条平系气题活更别打女变四神总"
    "何电数安少报才结反受目太量再感建务做接必场件计管期市直资命山金指许统区保至队形社便空决治展科司五基书非则界达光放"
    "强即像难且权思完设式色路记南品住告类求据程北边张该交规万取格望术领共确传师观清今切院让识候带导争运请求查收附件服"
    "务配置接口数据文档项目用户系统问题测试版本返回错误代码函数对象组件参数方法类型更新需要可以如果使用进行"
    "這個們來為國說時會對過發後裡種經麼學現當沒動還進樣開從實無與長機問關點業將兩間應頭體見產話給門東聲員論處義條氣題"
    "變電數報結務場計許統區隊決書則達強難權設記類據邊張該規萬術領確傳師觀讓識帶導爭運請網維資證華語言創內於並級"
)
_PUNCTUATION = frozenset("，。、：；！？（）《》“”‘’「」『』【】…—·～　％＋－／＝０１２３４５６７８９")
_CONTROL = re.compile(r"[\x01-\x08\x0e-\x1a\x1c-\x1f\x7f]")
_NOT_ASCII = re.compile(rb"[\x80-\xff]")
_GOOD = re.compile(r"[^\x00-\x7f\ufffd]")
_CONTROL_BYTE = re.compile(rb"[\x01-\x08\x0e-\x1a\x1c-\x1f\x7f]")
_KEEP_CONTROL_SHARE = 0.01
_KEEP_ZERO_SHARE = 0.1  # padded records and C strings in a text
_MIN_ORDINARY = 0.42
_MIN_SCORE = 0.25
_LEAST_SCORES = {"cp1251": 0.9, "koi8_r": 0.9}  # Greek and Hebrew bytes read as Cyrillic look half ordinary
_SHORT, _LEAST_COHERENCE = 200, 0.4
_MOSTLY_ASCII = 0.7


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


@dataclass(frozen=True)
class Decoded:
    """Text, the codec's name, how many broken bytes were left out, and whether the codec is only the best guess."""

    text: str
    encoding: str
    dropped: int = 0
    uncertain: bool = False

    def facts(self) -> dict[str, object]:
        """For an attachment's ``metadata``."""
        found: dict[str, object] = {"encoding": self.encoding}
        if self.dropped:
            found["undecodableBytes"] = self.dropped
        if self.uncertain:
            found["encodingUncertain"] = True
        return found


def decode(data: bytes, declared: str | None = None, *, cut: bool = False) -> Decoded:
    """Decode ``data``; ``cut``: more bytes followed, so the last character may be incomplete.

    Raises :class:`FormatError` ``BINARY_FILE`` when no encoding gives text.
    """
    for mark, name in _BOMS:
        if data.startswith(mark):
            return _marked(data[len(mark) :], name, cut=cut)
    wide = _wide(data)
    if wide is not None:
        return _checked(Decoded(_strict(data, wide, cut=True) or "", wide))
    text = _strict(data, "utf-8", cut=cut)
    if text is not None and b"\x1b$" not in data[:_SAMPLE]:
        return _checked(_seven_bit(data) or Decoded(text, "utf-8"))
    return _checked(_undeclared(data, declared, cut=cut))


def codec_of(declared: str | None) -> str | None:
    """Python's name of a declared charset, with the supersets that people's programs mean; ``None``: not known."""
    if not declared:
        return None
    name = declared.strip().strip("\"'").lower()
    try:
        return codecs.lookup(_ALIASES.get(name, name)).name
    except (LookupError, ValueError):
        return None


def _marked(data: bytes, name: str, *, cut: bool) -> Decoded:
    text = _strict(data, name, cut=cut)
    if text is not None:
        return _checked(Decoded(text, name))
    text = data.decode(name, "replace")
    broken = text.count("\ufffd")
    if broken > 1 + len(text) // 20:
        raise FormatError("BINARY_FILE", f"has the mark of {name} but is none")
    return _checked(Decoded(text.replace("\ufffd", ""), name, dropped=broken))


def _strict(data: bytes, name: str, *, cut: bool) -> str | None:
    try:
        return codecs.getincrementaldecoder(name)("strict").decode(data, not cut)
    except (UnicodeError, LookupError):
        return None


def _wide(data: bytes) -> str | None:
    """UTF-16 without a mark: its characters are ordinary ones, where any other text read as UTF-16 gives rare ones."""
    sample = data[:4096]
    if len(sample) < 4 or (0 not in sample and (len(data) % 2 or _fits_without(sample))):
        return None
    best: tuple[float, str] | None = None
    for name in ("utf-16-le", "utf-16-be"):
        text = _strict(sample, name, cut=True)
        if text and (share := sum(map(_is_ordinary, text)) / len(text)) > (best[0] if best else _MIN_ORDINARY):
            best = (share, name)
    return best[1] if best else None


def _fits_without(sample: bytes) -> bool:
    """Whether bytes without a zero are well explained by UTF-8 or an 8-bit or double-byte codec."""
    return _strict(sample, "utf-8", cut=True) is not None or any(score > 0.5 for score, _ in _ranked(sample)[:1])


def _is_ordinary(char: str) -> bool:
    return (
        " " <= char <= "~"
        or char in "\t\n\r"
        or char in _FREQUENT
        or char in _PUNCTUATION
        or "\u3041" <= char <= "\u30fc"
        or "\u0400" <= char <= "\u045f"
        or char in _common("euc_kr")
    )


def _undeclared(data: bytes, declared: str | None, *, cut: bool) -> Decoded:
    wanted = codec_of(declared)
    # a declared Latin charset is often only a default, and real UTF-16 was found before
    if wanted and wanted not in ("utf-8", "cp1252") and not wanted.startswith(("utf-16", "utf-32")):
        text = _strict(data, wanted, cut=cut)
        if text is not None:
            return Decoded(text, wanted)
    if b"\x1b$" in data[:_SAMPLE]:
        name = "iso2022_kr" if b"\x1b$)C" in data[:_SAMPLE] else "iso2022_jp_2"
        if (text := _strict(data, name, cut=cut)) is not None:
            return Decoded(text, name)
    if (nearly := _nearly_utf8(data)) is not None:
        return nearly
    return _guessed(data, cut=cut)


def _seven_bit(data: bytes) -> Decoded | None:
    """Chinese as old mail and news wrote it in seven bits (RFC 1843): ``~{`` begins it, ``~}`` ends it."""
    if b"~{" not in data[:_SAMPLE] or not data.isascii():
        return None
    text = _strict(data, "hz", cut=True)
    return Decoded(text, "hz") if text and any(char in _FREQUENT for char in text) else None


def _guessed(data: bytes, *, cut: bool) -> Decoded:
    first = _NOT_ASCII.search(data)
    start = max(0, first.start() - 64) if first else 0  # a long plain head tells nothing
    sample = data[start : start + _SAMPLE]
    if len(_CONTROL_BYTE.findall(sample)) > max(2, len(sample) * _KEEP_CONTROL_SHARE):
        raise FormatError("BINARY_FILE", "holds control characters")
    ranked = _ranked(sample)
    good = [name for score, name in ranked if score > _LEAST_SCORES.get(name, _MIN_SCORE)]
    if (not good or ranked[0][0] < 0.7) and (name := _detected(sample)):
        good.append(name)
    for name in good:
        if (text := _strict(data, name, cut=cut)) is not None:
            return Decoded(text, name)
    for name in good[:1]:  # a few broken characters in a long text
        text = data.decode(name, "ignore")
        if text and (lost := len(data) - len(text.encode(name, "ignore"))) < len(data) * 0.005:
            return Decoded(text, name, dropped=max(1, lost))
    if sum(9 <= byte < 0x7F for byte in sample) > len(sample) * _MOSTLY_ASCII:
        for name in ("cp1252", *(name for _score, name in ranked)):
            if (text := _strict(data, name, cut=cut)) is not None:
                return Decoded(text, name, uncertain=True)
    raise FormatError("BINARY_FILE", "no text encoding fits")


def _nearly_utf8(data: bytes) -> Decoded | None:
    """UTF-8 with a few broken places (a cut log, a pasted line): taken as UTF-8, the broken bytes left out."""
    first = _NOT_ASCII.search(data)
    if len(data) > _SAMPLE and first and not _mostly_utf8(data[first.start() : first.start() + _SAMPLE]):
        return None
    text = data.decode("utf-8", "replace")
    broken = text.count("\ufffd")
    good = len(_GOOD.findall(text))
    if good >= 20 * broken:
        return Decoded(text.replace("\ufffd", ""), "utf-8", dropped=broken)
    return None


def _mostly_utf8(sample: bytes) -> bool:
    text = sample.decode("utf-8", "replace")
    return len(_GOOD.findall(text)) >= 5 * text.count("\ufffd")


def _ranked(sample: bytes) -> list[tuple[float, str]]:
    """Codecs that fit, best first, by how ordinary their characters are (about 1 for real text, below 0 for wrong)."""
    scores = []
    for name, score in _SCORERS.items():
        text = _decoded_sample(sample, name)
        if text is None:
            continue
        foreign = [char for char in text if char > "\x7f"]
        if foreign:
            scores.append((score(text, foreign) / len(foreign), name))
    return sorted(scores, reverse=True)


def _decoded_sample(sample: bytes, name: str) -> str | None:
    text = _strict(sample, name, cut=True)
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
    if char in _FREQUENT:
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
    for char in foreign:
        if "\u3041" <= char <= "\u30f6" or char == "ー":
            total += 1.6
        elif char in common:
            total += 0.7
        elif char in _PUNCTUATION:
            total += 1.0
        else:  # half-width kana are what Chinese bytes look like in Shift-JIS
            total -= 1.0
    return total


def _score_korean(_text: str, foreign: list[str]) -> float:
    common = _common("euc_kr")
    return sum(1.3 if char in common else 0.6 if char in _PUNCTUATION else -1.0 for char in foreign)


def _score_latin(text: str, _foreign: list[str]) -> float:
    """Accented letters stand alone between plain letters; two in a row are rare, symbols inside words too."""
    total = 0.0
    for match in _FOREIGN_RUN.finditer(text):
        run = match.group()
        neighbours = text[match.start() - 1 : match.start()] + text[match.end() : match.end() + 1]
        if len(run) == 1 and run.isalpha():
            total += 1.1 if any(char.isalpha() for char in neighbours) else 0.5
        elif len(run) == 1 and run in _LATIN_SYMBOLS:
            total += 0.6
        else:
            total -= len(run)
    return total


def _score_cyrillic(text: str, foreign: list[str]) -> float:
    """The wrong Cyrillic code page turns small letters into capitals or symbols."""
    total = 0.0
    for match in _FOREIGN_RUN.finditer(text):
        for position, char in enumerate(match.group()):
            if char in "оеаинтсрвлкмдпуяы":
                total += 1.1
            elif "а" <= char <= "ё" or ("А" <= char <= "Я" and position == 0):
                total += 0.3
            else:
                total -= 1.2
    return total if len(foreign) > 3 else -2.0 * len(foreign)


_FOREIGN_RUN = re.compile(r"[^\x00-\x7f]+")
_LATIN_SYMBOLS = "–—‘’“”•…€£§°±²³µ½×©®™«»·\xa0"
_SCORERS = {
    "gb18030": _score_gb,
    "cp950": _score_big5,
    "big5hkscs": _score_big5,
    "cp932": _score_japanese,
    "euc_jp": _score_japanese,
    "cp949": _score_korean,
    "cp1252": _score_latin,
    "cp1251": _score_cyrillic,
    "koi8_r": _score_cyrillic,
}


def _detected(sample: bytes) -> str | None:
    """A statistical detector's word, for the alphabets that have no score of ours (Cyrillic, Greek, Thai, …)."""
    from charset_normalizer import from_bytes

    best = from_bytes(sample).best()
    if best is None or best.chaos >= 0.1 or (len(sample) < _SHORT and best.coherence < _LEAST_COHERENCE):
        return None
    return best.encoding


def _checked(decoded: Decoded) -> Decoded:
    """Refuse "text" that is mostly control characters; a few stray ones (NUL padding, form feeds) are dropped later."""
    sample = decoded.text[:_SAMPLE]
    controls, zeros = len(_CONTROL.findall(sample)), sample.count("\0")
    if controls > max(2, len(sample) * _KEEP_CONTROL_SHARE) or zeros > max(2, len(sample) * _KEEP_ZERO_SHARE):
        raise FormatError("BINARY_FILE", "holds control characters")
    return decoded
