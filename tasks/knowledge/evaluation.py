"""The three open checks of seed 000 §六 as figures and a picture; must not search, must not hold a card's text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

LEAST_QUESTIONS = 10
"""Fewer node questions say nothing about the share of zero hits (seed 000 §六.3)."""

_COLOURS = ("#2563eb", "#d97706", "#059669", "#db2777", "#7c3aed", "#475569")
_COLUMN, _HEIGHT, _LEFT, _TOP = 34, 260, 52, 40


@dataclass(frozen=True)
class Ranked:
    """One card of an answer: its number, its kind and its score."""

    card: str
    kind: str
    score: float | None


@dataclass(frozen=True)
class Sample:
    """One question and what was found. ``kind`` and ``expected`` (card numbers): what ought to be found, if known."""

    question: str
    status: str
    found: tuple[Ranked, ...] = ()
    kind: str = ""
    expected: tuple[str, ...] = ()


@dataclass(frozen=True)
class Enough:
    """Whether the first ``count`` cards hold what the longer list holds; of ``judged`` questions that can tell."""

    count: int
    longer: int
    judged: int
    enough: int


@dataclass(frozen=True)
class Evaluation:
    """The report. ``crowding``: wanted kind → kinds of the first cards; ``crowded_out``: the wanted kind came later."""

    asked: int
    answered: int
    zero_hits: int
    crowding: dict[str, dict[str, int]]
    crowded_out: int
    kind_judged: int
    enough: Enough

    @property
    def zero_rate(self) -> float:
        """Zero hits among the searches that were answered."""
        return self.zero_hits / self.answered if self.answered else 0.0


def evaluate(samples: Sequence[Sample], *, count: int, longer: int) -> Evaluation:
    """The figures of a run; ``found`` of each sample are the first ``longer`` cards, best first."""
    answered = [sample for sample in samples if sample.status in ("HIT", "ZERO_HIT")]
    crowding: dict[str, Counter[str]] = {}
    with_kind = [sample for sample in answered if sample.kind]
    for sample in with_kind:
        crowding.setdefault(sample.kind, Counter()).update(card.kind for card in sample.found[:count])
    reachable = [s for s in answered if _wanted_within(s, longer)]
    return Evaluation(
        asked=len(samples),
        answered=len(answered),
        zero_hits=sum(sample.status == "ZERO_HIT" for sample in answered),
        crowding={kind: dict(counts) for kind, counts in crowding.items()},
        crowded_out=sum(_has_kind(s, longer) and not _has_kind(s, count) for s in with_kind),
        kind_judged=len(with_kind),
        enough=Enough(count, longer, len(reachable), sum(_wanted_within(s, count) for s in reachable)),
    )


def _wanted_within(sample: Sample, count: int) -> bool:
    """Whether a wanted card (else one of the wanted kind) is among the first ``count``."""
    if sample.expected:
        return any(card.card in sample.expected for card in sample.found[:count])
    return bool(sample.kind) and _has_kind(sample, count)


def _has_kind(sample: Sample, count: int) -> bool:
    return any(card.kind == sample.kind for card in sample.found[:count])


# ---------------------------------------------------------------- how it is told


def table(samples: Sequence[Sample], report: Evaluation) -> list[str]:
    """Lines for people."""
    enough = report.enough
    share = f"{enough.enough}/{enough.judged}" if enough.judged else "cannot tell (no 'expected' or 'kind' found)"
    lines = [
        f"1 crowding-out   {report.crowded_out} of {report.kind_judged} questions with a kind lost it from the first "
        f"{enough.count}",
        *(
            f"    {kind}: " + ", ".join(f"{name} ×{n}" for name, n in row.items())
            for kind, row in report.crowding.items()
        ),
        f"2 enough at {enough.count}    {share} (against the first {enough.longer})",
        f"3 zero hits      {report.zero_hits} of {report.answered} answered searches ({report.zero_rate:.0%})",
        "",
    ]
    for number, sample in enumerate(samples, 1):
        best = sample.found[0].score if sample.found else None
        told = f"{best:.3f}" if best is not None else "-"
        cards = " ".join(card.card for card in sample.found[: enough.count]) or "-"
        lines.append(f"{number:>3}  {sample.status:<12} {told:>6}  {cards}  {sample.question[:40]}")
    return lines


def picture(samples: Sequence[Sample], *, count: int, threshold: float) -> str:
    """An SVG: scores of each question's cards, filled for the first ``count``, coloured by kind; × for zero hits."""
    kinds = list(dict.fromkeys(card.kind for sample in samples for card in sample.found))
    width = _LEFT + _COLUMN * max(len(samples), 8) + 150
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{_TOP + _HEIGHT + 50}" '
        'font-family="sans-serif" font-size="11">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{_LEFT}" y="20" font-size="13">Scores of the cards found, by question</text>',
    ]
    for tenth in range(0, 11, 2):
        y = _y(tenth / 10)
        parts.append(f'<line x1="{_LEFT}" x2="{width - 140}" y1="{y}" y2="{y}" stroke="#e5e7eb"/>')
        parts.append(f'<text x="{_LEFT - 26}" y="{y + 4}">{tenth / 10:.1f}</text>')
    y = _y(threshold)
    parts.append(f'<line x1="{_LEFT}" x2="{width - 140}" y1="{y}" y2="{y}" stroke="#dc2626" stroke-dasharray="4 3"/>')
    parts.append(f'<text x="{width - 136}" y="{y + 4}" fill="#dc2626">threshold {threshold:g}</text>')
    for column, sample in enumerate(samples):
        parts += _column(_LEFT + _COLUMN * column + _COLUMN // 2, column + 1, sample, count, kinds)
    for row, kind in enumerate(kinds):
        y = _TOP + 14 + 16 * row
        parts.append(f'<circle cx="{width - 130}" cy="{y}" r="4" fill="{_colour(kinds, kind)}"/>')
        parts.append(f'<text x="{width - 120}" y="{y + 4}">{escape(kind)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _column(x: int, number: int, sample: Sample, count: int, kinds: list[str]) -> list[str]:
    parts = [f'<text x="{x}" y="{_TOP + _HEIGHT + 18}" text-anchor="middle">{number}</text>']
    if not sample.found:
        mark = "×" if sample.status == "ZERO_HIT" else "!"
        parts.append(f'<text x="{x}" y="{_y(0.02)}" text-anchor="middle" fill="#dc2626" font-size="14">{mark}</text>')
    for rank, card in enumerate(sample.found):
        colour = _colour(kinds, card.kind)
        fill = colour if rank < count else "none"
        y = _y(card.score or 0.0)
        title = escape(f"{card.card} {card.kind}")
        parts.append(f'<circle cx="{x}" cy="{y}" r="4" fill="{fill}" stroke="{colour}"><title>{title}</title></circle>')
    return parts


def _y(score: float) -> float:
    return round(_TOP + _HEIGHT * (1 - min(max(score, 0.0), 1.0)), 1)


def _colour(kinds: list[str], kind: str) -> str:
    return _COLOURS[kinds.index(kind) % len(_COLOURS)]
