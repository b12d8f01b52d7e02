"""How much of a text fits: cutting to character budgets at places a reader can bear; must not decide what is important.

A character is a Unicode code point, as Python and the limits of CONTRACT §4.1 count.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tasks.characters import whole_characters
from tasks.contract.context import Limits
from tasks.contract.evidence import EvidencePage
from tasks.contract.payload import HistoryMessage

MAX_PROMPT_CHARS = 120_000
"""All data of one model call: 45,000 evidence, 16,000 attachments, 9,000 history and room for lists and rules."""

_BORDER_ZONE = 0.2  # a border is looked for in the last fifth of the budget; before it too much would be lost
_SENTENCE_ENDS = "。！？!?；;…"


class Cut(NamedTuple):
    """A text within its budget, and whether something was left out."""

    text: str
    truncated: bool


def cut_anywhere(text: str, limit: int) -> Cut:
    """The first ``limit`` characters at most; never inside an emoji, a letter with its marks, or a line break."""
    if len(text) <= limit:
        return Cut(text, truncated=False)
    return Cut(text[: whole_characters(text, max(limit, 0))], truncated=True)


def cut_text(text: str, limit: int) -> Cut:
    """The first ``limit`` characters at most, up to the end of a line, else of a sentence, in the budget's last fifth.

    Without one of these: :func:`cut_anywhere`.
    """
    shortened = cut_anywhere(text, limit)
    if not shortened.truncated:
        return shortened
    kept = shortened.text
    if text[len(kept) : len(kept) + 1] == "\n":
        return shortened
    earliest = int(limit * (1 - _BORDER_ZONE))
    line_end = kept.rfind("\n", earliest)
    if line_end < 0:
        line_end = max((kept.rfind(mark, earliest) + 1 for mark in _SENTENCE_ENDS), default=0) or len(kept)
    return Cut(kept[:line_end], truncated=True)


def fit_texts(texts: Sequence[str], each: int, total: int) -> list[Cut]:
    """Every text cut to ``each`` characters and all of them to ``total``.

    When the total is short, short texts stay whole and the long ones share what is left equally: no page that the
    model asked for is starved by one before it.
    """
    shares = _shares([min(len(text), each) for text in texts], total)
    return [cut_text(text, share) for text, share in zip(texts, shares, strict=True)]


def fit_evidence(pages: Sequence[EvidencePage], limits: Limits) -> tuple[EvidencePage, ...]:
    """The pages with contents within ``maxEvidencePageChars`` and ``maxTotalEvidenceChars``; ``truncated`` says so."""
    cuts = fit_texts([page.content for page in pages], limits.max_evidence_page_chars, limits.max_total_evidence_chars)
    return tuple(
        page.model_copy(update={"content": short.text, "truncated": page.truncated or short.truncated})
        for page, short in zip(pages, cuts, strict=True)
    )


def cut_history(messages: Sequence[HistoryMessage], limits: Limits) -> tuple[HistoryMessage, ...]:
    """The last messages, oldest first, each content within its budget."""
    last = messages[-limits.max_history_messages :] if limits.max_history_messages > 0 else ()
    return tuple(
        message.model_copy(update={"content": cut_text(message.content, limits.max_history_message_chars).text})
        for message in last
    )


def fit_sections(sections: Sequence[tuple[str, int]], total: int) -> list[Cut]:
    """Prompt sections within ``total`` characters. Each is ``(text, rank)``: rank 0 is served first, then 1, …

    Sections of one rank that do not all fit share what is left equally; the order of the result is that of the input.
    """
    shares = [0] * len(sections)
    left = max(total, 0)
    for rank in sorted({rank for _, rank in sections}):
        places = [at for at, (_, own) in enumerate(sections) if own == rank]
        for at, share in zip(places, _shares([len(sections[at][0]) for at in places], left), strict=True):
            shares[at] = share
            left -= share
    return [cut_text(text, share) for (text, _), share in zip(sections, shares, strict=True)]


def _shares(wants: Sequence[int], total: int) -> list[int]:
    """How many of ``total`` characters each gets: no more than it wants, and the rest shared equally."""
    shares = [0] * len(wants)
    left = max(total, 0)
    for position, at in enumerate(sorted(range(len(wants)), key=wants.__getitem__)):
        shares[at] = min(wants[at], left // (len(wants) - position))
        left -= shares[at]
    return shares
