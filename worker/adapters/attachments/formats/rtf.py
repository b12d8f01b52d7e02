"""RTF: text with its code pages (GBK, Shift-JIS, …) and Unicode escapes; pictures and tables of styles passed over."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, replace
from typing import BinaryIO

from worker.adapters.attachments.formats.decode import codec_of, decode
from worker.adapters.attachments.formats.sink import FormatError, Sink, check_time

_READ = 16 * 1024 * 1024
_TOKEN = re.compile(
    rb"\\([a-zA-Z]{1,32})(-?\d{1,10})? ?|\\'([0-9a-fA-F]{2})|\\([^a-zA-Z])|([{}])|([^\\{}\r\n]+)|[\r\n]+|\\"
)
_SKIPPED = frozenset(
    b"fonttbl colortbl stylesheet info pict object objdata themedata colorschememapping datastore listtable "
    b"listoverridetable rsidtbl generator xmlnstbl latentstyles filetbl revtbl fldinst bkmkstart bkmkend datafield "
    b"mmathPr nonshppict pgptbl template sp".split()
)
_MARKS = {
    b"par": "\n", b"line": "\n", b"sect": "\n", b"page": "\n", b"row": "\n", b"tab": "\t", b"cell": "\t",
    b"emdash": "—", b"endash": "–", b"bullet": "•", b"lquote": "‘", b"rquote": "’", b"ldblquote": "“",
    b"rdblquote": "”", b"emspace": " ", b"enspace": " ",
}  # fmt: skip
_STARRED = frozenset((b"shpinst", b"annotation"))
"""Behind a star ("ignore what you do not know") and yet text: shapes and comments."""
_HIDING = frozenset((b"v", b"deleted", b"htmlrtf"))
"""Switches: hidden, deleted as a tracked change, and what only repeats a mail's HTML ([MS-OXRTFEX] 2.1.3.2)."""
_PLACES = frozenset(b"footnote annotation shptxt header headerl headerr headerf footer footerl footerr footerf".split())
"""Text of its own, in the middle of another."""
_SYSTEMS = {b"mac": "mac_roman", b"pc": "cp437", b"pca": "cp850"}
_CHARSETS = {
    0: "cp1252", 77: "mac_roman", 128: "cp932", 129: "cp949", 130: "johab", 134: "gb18030", 136: "cp950", 161: "cp1253",
    162: "cp1254", 163: "cp1258", 177: "cp1255", 178: "cp1256", 186: "cp1257", 204: "cp1251", 222: "cp874",
    238: "cp1250",
}  # fmt: skip
_MAX_DEPTH = 10_000
_LZFU_START = (
    b"{\\rtf1\\ansi\\mac\\deff0\\deftab720{\\fonttbl;}{\\f0\\fnil \\froman \\fswiss \\fmodern \\fscript "
    b"\\fdecor MS Sans SerifSymbolArialTimes New RomanCourier{\\colortbl\\red0\\green0\\blue0\r\n"
    b"\\par \\pard\\plain\\f0\\fs20\\b\\i\\u\\tab\\tx"
)
"""What the dictionary of compressed RTF holds before the first byte ([MS-OXRTFCP] 2.1.2.1)."""


@dataclass
class _Group:
    """What a closing brace gives back."""

    skip: bool = False
    hidden: bool = False
    codec: str = ""
    unicode_skip: int = 1
    in_fonts: bool = False

    @property
    def silent(self) -> bool:
        return self.skip or self.hidden


class _Reader:
    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._group = _Group()
        self._stack: list[_Group] = []
        self._default = ""
        self._fonts: dict[int, str] = {}
        self._font = 0
        self._raw = bytearray()
        self._swallow = 0
        self._high = 0
        self._starred = False

    def read(self, data: bytes) -> None:
        at = 0
        for number in range(len(data)):
            match = _TOKEN.match(data, at)
            if match is None:
                break
            if number % 4096 == 0:
                check_time()
            at = match.end() + self._token(match)
        self._flush()

    def _token(self, match: re.Match[bytes]) -> int:
        """Handle one token; returns the bytes of binary data that follow it."""
        word, value, hexed, symbol, brace, plain = match.groups()
        if word:
            return self._word(word, int(value) if value else None)
        if hexed:
            self._byte(int(hexed, 16))
        elif brace:
            self._flush()
            self._brace(brace)
        elif plain:
            self._plain(plain)
        elif symbol:
            self._symbol(symbol)
        return 0

    def _brace(self, brace: bytes) -> None:
        self._swallow, self._starred = 0, False
        if brace == b"{" and len(self._stack) < _MAX_DEPTH:
            self._stack.append(self._group)
            group = self._group
            self._group = replace(group)
        elif brace == b"}" and self._stack:
            self._group = self._stack.pop()

    def _word(self, word: bytes, value: int | None) -> int:
        """Handle a control word; returns the bytes of binary data that follow it."""
        if word == b"bin":
            return max(0, value or 0)
        if word != b"u":
            self._flush()
        if self._begins_destination(word):
            return 0
        if word in _HIDING:
            self._group.hidden = value != 0
        elif word in (b"f", b"fcharset", b"ansicpg", b"cpg", b"plain") or word in _SYSTEMS:
            self._set_codec(word, value)
        elif word == b"uc":
            self._group.unicode_skip = max(0, value if value is not None else 1)
        elif word == b"u" and value is not None:
            self._unicode(value & 0xFFFF)
        elif word in _MARKS and not self._group.silent:
            self._sink.write(_MARKS[word])
        return 0

    def _begins_destination(self, word: bytes) -> bool:
        """Whether the word says where the group's text belongs; what is not shown is skipped from here on."""
        starred, self._starred = self._starred, False
        if word == b"fonttbl":
            self._group.in_fonts = self._group.skip = True
        elif word in _SKIPPED or (starred and word not in _STARRED):
            self._group.skip = True
        elif word in _PLACES and not self._group.silent:
            self._sink.write("\n")
        else:
            return False
        return True

    def _set_codec(self, word: bytes, value: int | None) -> None:
        if word in _SYSTEMS:
            self._default = _SYSTEMS[word]
        elif word == b"ansicpg":
            self._default = codec_of("utf-8" if value == 65001 else f"cp{value}") or ""
        elif word == b"f" and self._group.in_fonts:
            self._font = value or 0
        elif word == b"f":
            self._group.codec = self._fonts.get(value or 0, "")
        elif word == b"fcharset" and self._group.in_fonts:
            self._fonts[self._font] = _CHARSETS.get(value or 0, "")
        elif word == b"plain":
            self._group.codec, self._group.hidden = "", False

    def _symbol(self, symbol: bytes) -> None:
        if symbol == b"*":
            self._starred = True
        elif symbol in b"\\{}":
            self._byte(symbol[0])
        elif symbol == b"~":
            self._plain(b" ")
        elif symbol == b"_":
            self._plain(b"-")
        elif symbol in b"\r\n" and not self._group.silent:
            self._flush()
            self._sink.write("\n")

    def _byte(self, byte: int) -> None:
        if self._swallow:
            self._swallow -= 1
        elif not self._group.silent:
            self._raw.append(byte)

    def _plain(self, plain: bytes) -> None:
        dropped = min(self._swallow, len(plain))
        self._swallow -= dropped
        if not self._group.silent:
            self._raw += plain[dropped:]

    def _unicode(self, code: int) -> None:
        self._flush()
        self._swallow = self._group.unicode_skip
        if self._group.silent:
            return
        if 0xD800 <= code < 0xDC00:
            self._high = code
            return
        if 0xDC00 <= code < 0xE000:
            if self._high:
                self._sink.write(chr(0x10000 + ((self._high - 0xD800) << 10) + (code - 0xDC00)))
        else:
            self._sink.write(chr(code))
        self._high = 0

    def _flush(self) -> None:
        """Decode the bytes that came together: double-byte characters are written as two escapes."""
        if not self._raw:
            return
        raw, self._raw = bytes(self._raw), bytearray()
        if raw.isascii():
            self._sink.write(raw.decode("ascii"))
            return
        # a font without East Asian charset in a document of an East Asian code page: the document's page is meant
        codecs = [name for name in (self._group.codec, self._default) if name]
        if self._default in ("gb18030", "cp950", "cp932", "cp949") and self._group.codec == "cp1252":
            codecs.reverse()
        for name in codecs:
            try:
                self._sink.write(raw.decode(name))
                return
            except (UnicodeDecodeError, LookupError):
                continue
        try:
            self._sink.write(decode(raw).text)
        except FormatError:
            self._sink.write(raw.decode(codecs[0] if codecs else "cp1252", "ignore"))


def extract(file: BinaryIO, sink: Sink, _kind: str) -> None:
    """The text of an RTF document."""
    read_text(file.read(_READ), sink)


def read_text(data: bytes, sink: Sink) -> None:
    """The same for bytes at hand."""
    _Reader(sink).read(data)


def unpacked(packed: bytes) -> bytes:
    """RTF as Outlook compresses it ([MS-OXRTFCP] 2.2)."""
    if len(packed) < 16:
        return b""
    size, kind = struct.unpack_from("<II", packed, 4)
    if kind == 0x414C_454D:  # stored
        return packed[16 : 16 + size]
    window = bytearray(_LZFU_START.ljust(4096, b"\0"))
    write, at, out = len(_LZFU_START), 16, bytearray()
    while at < len(packed) and len(out) < min(size, _READ):
        control = packed[at]
        at += 1
        for bit in range(8):
            if at + 1 >= len(packed):
                return bytes(out)
            if control >> bit & 1:
                offset, length = packed[at] << 4 | packed[at + 1] >> 4, (packed[at + 1] & 0xF) + 2
                at += 2
                if offset == write % 4096:  # the end mark
                    return bytes(out)
            else:
                offset, length = -1, 1
            for step in range(length):
                byte = packed[at] if offset < 0 else window[(offset + step) % 4096]
                window[write % 4096] = byte
                write += 1
                out.append(byte)
            at += offset < 0
    return bytes(out)
