"""Where a text may be cut: never inside an emoji, a letter with its marks, a line break; must not choose a length."""

from __future__ import annotations

import unicodedata

_LONGEST_CLUSTER = 64  # code points; longer runs of combining marks are noise and may be split
_JOINER = "\u200d"


def whole_characters(text: str, at: int) -> int:
    """The last place at or before ``at`` where ``text`` may be cut; ``at`` is at most its length."""
    if at == len(text):
        return at
    for place in range(at, max(at - _LONGEST_CLUSTER, 0), -1):
        if not _is_joined(text, place):
            return place
    return at if at > _LONGEST_CLUSTER else 0


def _is_joined(text: str, at: int) -> bool:
    """Whether the characters before and after ``at`` belong together (the common cases of UAX #29)."""
    before, after = text[at - 1], text[at]
    if (before, after) == ("\r", "\n") or before == _JOINER or after == _JOINER:
        return True
    if "\ud800" <= before <= "\udbff" and "\udc00" <= after <= "\udfff":
        return True
    if _is_flag_letter(before) and _is_flag_letter(after):
        return _flag_letters_before(text, at) % 2 == 1
    is_tag = "\U000e0020" <= after <= "\U000e007f"
    is_skin_tone = "\U0001f3fb" <= after <= "\U0001f3ff"
    return is_tag or is_skin_tone or unicodedata.category(after) in ("Mn", "Me", "Mc")


def _is_flag_letter(char: str) -> bool:
    return "\U0001f1e6" <= char <= "\U0001f1ff"


def _flag_letters_before(text: str, at: int) -> int:
    start = at
    while start > 0 and _is_flag_letter(text[start - 1]):
        start -= 1
    return at - start
