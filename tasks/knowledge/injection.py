"""Hits become one text within a token budget: text, markdown or JSON; must not decide which source is asked.

Hits are foreign text. They are numbered, quoted (markdown) or encoded (JSON) so that no record can pose as another
one, and the prompt puts the whole into a data block. Whole records come first, then one is cut at a sentence.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tasks.characters import whole_characters
from tasks.knowledge.found import Hit
from tasks.knowledge.spec import Format, Injection

Count = Callable[[str], int]

DEFAULT_MAX_TOKENS = 4_000
"""Budget of a source that names none: no source may fill a prompt by itself."""

_MAX_TITLE, _MAX_URL = 200, 500
_MIN_CUT_CHARS = 12
_CHARS_A_TOKEN = 16  # a text with more characters than this for each token of the budget is cut anyway
_SENTENCE_END = re.compile(r"(?:[。！？!?；;…]+[”’」』）)\"']*|\.(?=\s)|\n)")
_SPARE = (0, 4, 16, 64)
_EXACT_ENOUGH = 40  # the cut goes back to a sentence's end anyway: 2 % more text is not worth more counting
_CUT_MARK = "（以下略）"


@dataclass(frozen=True)
class Injected:
    """What stands in the prompt. ``used``: records in it, a cut one included; ``cut``: something was left out."""

    text: str = ""
    used: int = 0
    cut: bool = False
    tokens: int = 0


@dataclass(frozen=True)
class _Record:
    """A hit as it is shown, every text cleaned."""

    content: str
    title: str
    url: str
    score: float | None
    truncated: bool = False


def inject(
    hits: Sequence[Hit],
    injection: Injection,
    source_id: str,
    *,
    count: Count,
    clean: Callable[[str], str] = str,
) -> Injected:
    """The hits, best first, as the text of ``injection.target_variable``; no hit, no text.

    ``count`` counts tokens. ``clean`` disarms what imitates the prompt, before anything is counted.
    ``count(result.text) <= max_tokens`` always holds.
    """
    budget = injection.max_tokens or DEFAULT_MAX_TOKENS
    records = [record for hit in hits if (record := _record(hit, clean)).content.strip()]
    known: dict[str, int] = {}

    def size(piece: str) -> int:
        if piece not in known:
            known[piece] = count(piece)
        return known[piece]

    for spare in _SPARE:  # pieces add up to the whole but for a token or two where they meet
        chosen = _chosen(records, injection.format, source_id, size, budget - spare)
        text = "".join(_pieces(chosen, injection.format, source_id)) if chosen else ""
        tokens = count(text) if text else 0
        if tokens <= budget:
            cut = len(chosen) < len(records) or any(record.truncated for record in chosen)
            return Injected(text, len(chosen), cut, tokens)
    return Injected(cut=bool(records))


def _chosen(records: Sequence[_Record], form: Format, source_id: str, size: Count, budget: int) -> list[_Record]:
    """As many whole records as fit, and the start of the next one."""

    def fits(chosen: Sequence[_Record]) -> bool:
        if sum(len(record.content) for record in chosen) > budget * _CHARS_A_TOKEN:
            return False
        return sum(size(piece) for piece in _pieces(chosen, form, source_id)) <= budget

    whole = 0
    while whole < len(records) and fits(records[: whole + 1]):
        whole += 1
    chosen = list(records[:whole])
    if whole < len(records):
        short = _cut(records[whole], lambda part: fits([*chosen, part]), budget * _CHARS_A_TOKEN)
        return [*chosen, short] if short else chosen
    return chosen


def sentence_cut(text: str) -> str:
    """The text up to its last whole sentence; one without a sentence's end as it is."""
    ends = [found.end() for found in _SENTENCE_END.finditer(text)]
    return text[: ends[-1]].rstrip() if ends else text


def _record(hit: Hit, clean: Callable[[str], str]) -> _Record:
    title = " ".join(clean(hit.title).split())[:_MAX_TITLE]
    url = "".join(clean(hit.url).split())[:_MAX_URL]
    return _Record(clean(hit.content).strip(), title, url, hit.score)


def _cut(record: _Record, fits: Callable[[_Record], bool], most_chars: int) -> _Record | None:
    """The longest start of the record that fits and ends with a sentence; ``None`` when hardly anything would stay."""

    def short(length: int) -> _Record:
        return _Record(record.content[:length], record.title, record.url, record.score, truncated=True)

    low, high = 0, min(len(record.content), max(most_chars, 0))
    while high - low > max(1, low // _EXACT_ENOUGH):
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(short(middle)) else (low, middle - 1)
    length = low
    while length >= _MIN_CUT_CHARS:
        whole = record.content[: whole_characters(record.content, length)]
        content = sentence_cut(whole) or whole
        part = _Record(content, record.title, record.url, record.score, truncated=True)
        if content.strip() and fits(part):
            return part
        length = length * 9 // 10  # a tokenizer may count a shorter text higher
    return None


def _pieces(records: Sequence[_Record], form: Format, source_id: str) -> list[str]:
    """The text in pieces, one a record after the head, split where a tokenizer splits too."""
    if form == "json":
        return _json_pieces(records, source_id)
    pieces = [f"### 外部资料：{source_id}" if form == "markdown" else f"外部资料：{source_id}"]
    for number, record in enumerate(records, 1):
        content = record.content + (_CUT_MARK if record.truncated else "")
        if form == "markdown":
            head = f"#### {number}. {record.title}".rstrip()
            body = "\n".join(f"> {line}".rstrip() for line in content.splitlines())
        else:
            head, body = f"[{number}] {record.title}".rstrip(), content
        pieces.append("\n".join(part for part in (head, body, f"（{record.url}）" if record.url else "") if part))
    return [*(f"{piece}\n\n" for piece in pieces[:-1]), pieces[-1]]


def _json_pieces(records: Sequence[_Record], source_id: str) -> list[str]:
    pieces = [f'{{"source": {json.dumps(source_id)}, "records": [']
    for number, record in enumerate(records, 1):
        fields: dict[str, object] = {"title": record.title, "content": record.content, "url": record.url}
        if record.score is not None:
            fields["score"] = round(record.score, 4)
        if record.truncated:
            fields["truncated"] = True
        shown = {key: value for key, value in fields.items() if value != ""}
        text = json.dumps(shown, ensure_ascii=False)
        pieces.append((" " if number > 1 else "") + text + ("," if number < len(records) else "]}"))
    return pieces
