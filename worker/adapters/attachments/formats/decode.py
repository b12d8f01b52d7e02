"""Bytes of unknown encoding to text: byte order marks, strict UTF-8, what is declared, then scores; never by replacing.

Undeclared Chinese, Japanese and Korean text is told apart by how common the characters are that each codec yields:
wrong codecs give rare ideographs. Short texts are what people send, and there this beats statistical detectors.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass

from worker.adapters.attachments.formats.encoding_scores import (
    FREQUENT,
    is_ordinary,
    is_utf8_by_chance,
    ranked_codecs,
    strict,
)
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
_CONTROL = re.compile(r"[\x01-\x08\x0e-\x1a\x1c-\x1f\x7f]")
_NOT_ASCII = re.compile(rb"[\x80-\xff]")
_GOOD = re.compile(r"[^\x00-\x7f\ufffd]")
_CONTROL_BYTE = re.compile(rb"[\x01-\x08\x0e-\x1a\x1c-\x1f\x7f]")
_KEEP_CONTROL_SHARE = 0.01
_KEEP_ZERO_SHARE = 0.1  # padded records and C strings in a text
_MIN_ORDINARY = 0.42
_MIN_SCORE = 0.25
_LEAST_SCORES = {"cp1251": 0.9, "koi8_r": 0.9}  # Greek and Hebrew bytes read as Cyrillic look half ordinary
_LEAST_CONTRADICTION, _CONVINCING = 16, 0.8
_FEW, _CLOSE = 6, 0.7
_SHORT, _LEAST_COHERENCE = 200, 0.4
_MOSTLY_ASCII = 0.7


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
        return _checked(Decoded(strict(data, wide, cut=True) or "", wide))
    text = strict(data, "utf-8", cut=cut)
    if text is not None and b"\x1b$" not in data[:_SAMPLE]:
        if is_utf8_by_chance(data[:_SAMPLE], text[:_SAMPLE]):
            return _checked(_guessed(data, cut=cut))
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
    text = strict(data, name, cut=cut)
    if text is not None:
        return _checked(Decoded(text, name))
    text = data.decode(name, "replace")
    broken = text.count("\ufffd")
    if broken > 1 + len(text) // 20:
        raise FormatError("BINARY_FILE", f"has the mark of {name} but is none")
    return _checked(Decoded(text.replace("\ufffd", ""), name, dropped=broken))


def _wide(data: bytes) -> str | None:
    """UTF-16 or UTF-32 without a mark: ordinary characters, where other text read as UTF-16 gives rare ones."""
    sample = data[:4096]
    if len(sample) < 4 or (0 not in sample and (len(data) % 2 or _fits_without(sample))):
        return None
    best: tuple[float, str] | None = None
    for name in ("utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"):
        text = strict(sample, name, cut=True)
        if text and (share := sum(map(is_ordinary, text)) / len(text)) > (best[0] if best else _MIN_ORDINARY):
            best = (share, name)
    return best[1] if best else None


def _fits_without(sample: bytes) -> bool:
    """Whether bytes without a zero are well explained by UTF-8 or an 8-bit or double-byte codec."""
    return strict(sample, "utf-8", cut=True) is not None or any(score > 0.5 for score, _ in ranked_codecs(sample)[:1])


def _undeclared(data: bytes, declared: str | None, *, cut: bool) -> Decoded:
    wanted = codec_of(declared)
    # a declared Latin charset is often only a default, and real UTF-16 was found before
    if wanted and wanted not in ("utf-8", "cp1252") and not wanted.startswith(("utf-16", "utf-32")):
        text = strict(data, wanted, cut=cut)
        if text is not None and not _is_contradicted(data, wanted):
            return Decoded(text, wanted)
    if b"\x1b$" in data[:_SAMPLE]:
        name = "iso2022_kr" if b"\x1b$)C" in data[:_SAMPLE] else "iso2022_jp_2"
        if (text := strict(data, name, cut=cut)) is not None:
            return Decoded(text, name)
    if (nearly := _nearly_utf8(data)) is not None:
        return nearly
    return _guessed(data, cut=cut)


def _is_contradicted(data: bytes, declared: str) -> bool:
    """Whether what is declared gives characters nobody writes, and another codec ordinary ones: Big5 called GB2312."""
    sample = _telling(data)
    if len(_NOT_ASCII.findall(sample)) < _LEAST_CONTRADICTION:
        return False
    ranked = ranked_codecs(sample)
    own = next((score for score, name in ranked if name == declared), None)
    return own is not None and own < _MIN_SCORE and ranked[0][0] > _CONVINCING


def _telling(data: bytes) -> bytes:
    """The part that tells codecs apart: a long plain head says nothing."""
    first = _NOT_ASCII.search(data)
    start = max(0, first.start() - 64) if first else 0
    return data[start : start + _SAMPLE]


def _seven_bit(data: bytes) -> Decoded | None:
    """Chinese as old mail and news wrote it in seven bits (RFC 1843): ``~{`` begins it, ``~}`` ends it."""
    if b"~{" not in data[:_SAMPLE] or not data.isascii():
        return None
    text = strict(data, "hz", cut=True)
    return Decoded(text, "hz") if text and any(char in FREQUENT for char in text) else None


def _guessed(data: bytes, *, cut: bool) -> Decoded:
    sample = _telling(data)
    if len(_CONTROL_BYTE.findall(sample)) > max(2, len(sample) * _KEEP_CONTROL_SHARE):
        raise FormatError("BINARY_FILE", "holds control characters")
    ranked = ranked_codecs(sample)
    good = [name for score, name in ranked if score > _LEAST_SCORES.get(name, _MIN_SCORE)]
    if (not good or ranked[0][0] < 0.7) and (name := _detected(sample)):
        good.append(name)
    for name in good:
        if (text := strict(data, name, cut=cut)) is not None:
            return Decoded(text, name, uncertain=_has_rival(sample, name, ranked))
    for name in good[:1]:  # a few broken characters in a long text
        text = data.decode(name, "ignore")
        if text and (lost := len(data) - len(text.encode(name, "ignore"))) < len(data) * 0.005:
            return Decoded(text, name, dropped=max(1, lost))
    if sum(9 <= byte < 0x7F for byte in sample) > len(sample) * _MOSTLY_ASCII:
        for name in ("cp1252", *(name for _score, name in ranked)):
            if (text := strict(data, name, cut=cut)) is not None:
                return Decoded(text, name, uncertain=True)
    raise FormatError("BINARY_FILE", "no text encoding fits")


def _has_rival(sample: bytes, name: str, ranked: list[tuple[float, str]]) -> bool:
    """Whether a few characters are nearly as ordinary in another codec: 測試 in Big5 is 代刚 in GBK."""
    text = strict(sample, name, cut=True)
    if text is None or sum(char > "\x7f" for char in text) > _FEW:
        return False
    own = next((score for score, other in ranked if other == name), 0.0)
    return any(score > own - _CLOSE and strict(sample, other, cut=True) not in (text, None) for score, other in ranked)


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
