"""FAQ cards of the production side: their checks, batches and what a verification means; must not touch a server."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tasks.knowledge.question import plain

MAX_BATCH = 200
"""More entries (or 50 KB) in one import and the server moves them to object storage (facts A1, trap 6)."""

MAGNET_SHARE, MAGNET_LEAST = 0.1, 3
Mode = Literal["append", "replace"]


@dataclass(frozen=True)
class FaqCard:
    """One entry to import. ``place`` says where it stands in the source files."""

    question: str
    answers: tuple[str, ...]
    similar: tuple[str, ...] = ()
    negative: tuple[str, ...] = ()
    strategy: str = "all"
    tag: str = ""
    place: str = ""

    def entry(self) -> dict[str, Any]:
        """The entry as an import takes it."""
        found: dict[str, Any] = {
            "standard_question": self.question,
            "similar_questions": list(self.similar),
            "negative_questions": list(self.negative),
            "answers": list(self.answers),
            "answer_strategy": self.strategy,
        }
        return {**found, "tag_name": self.tag} if self.tag else found


@dataclass(frozen=True)
class Problem:
    """What is wrong with a card, for operators; never its text beyond the question's beginning."""

    place: str
    text: str
    fatal: bool = True


@dataclass(frozen=True)
class Batch:
    """Entries of one import. ``task_id`` is the same for the same cards in the same order."""

    number: int
    task_id: str
    entries: tuple[Mapping[str, Any], ...]


def problems_with(cards: Sequence[FaqCard], existing: Iterable[Mapping[str, Any]] = ()) -> list[Problem]:
    """What the server would refuse, merge or drop in silence: told before anything is sent.

    ``existing``: the base's entries; the same question with the same answers is only a repeat, no problem.
    """
    found: list[Problem] = []
    owner: dict[str, str] = {}
    there = {plain(str(entry.get("standard_question"))): entry for entry in existing}
    leads_to = {plain(str(one)): key for key, entry in there.items() for one in entry.get("similar_questions") or ()}
    leads_to |= {key: key for key in there}
    for card in cards:
        found += [Problem(card.place, text) for text in _own_problems(card)]
        for question in dict.fromkeys(map(plain, (card.question, *card.similar))):
            if question and question in owner:
                found.append(Problem(card.place, f"a question of this card is already one of {owner[question]}"))
            elif leads_to.get(question, plain(card.question)) != plain(card.question):
                found.append(Problem(card.place, "a question of this card leads to another entry of the base already"))
            owner.setdefault(question, card.place)
        same = there.get(plain(card.question))
        if same is not None and list(same.get("answers") or []) != list(card.answers):
            found.append(Problem(card.place, "the base has this question with other answers: append would merge them"))
        elif same is not None:
            whole = _other_questions(card.entry()) <= _other_questions(same)
            told = "already in the base" if whole else "already in the base, there without some of its questions"
            found.append(Problem(card.place, f"{told}, left out", fatal=False))
    return found


def _own_problems(card: FaqCard) -> list[str]:
    found = []
    if not plain(card.question):
        found.append("no standard question")
    if not any(answer.strip() for answer in card.answers):
        found.append("no answer")
    if card.strategy not in ("all", "random"):
        found.append("answer_strategy must be all or random")
    if set(map(plain, card.negative)) & set(map(plain, (card.question, *card.similar))):
        found.append("a negative question is also one of its questions")
    if card.question in card.similar:
        found.append("a similar question is its standard question again")
    return found


def not_there(entries: Iterable[Mapping[str, Any]], existing: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Entries whose standard question the base does not have."""
    known = {plain(str(entry.get("standard_question"))) for entry in existing}
    return [entry for entry in entries if plain(str(entry["standard_question"])) not in known]


def content_of(entry: Mapping[str, Any]) -> tuple[str, tuple[str, ...], frozenset[str]]:
    """What an entry says, whatever a server puts beside it: its question, its answers, its other questions."""
    answers = tuple(map(str, entry.get("answers") or ()))
    return plain(str(entry.get("standard_question"))), answers, _other_questions(entry)


def _other_questions(entry: Mapping[str, Any]) -> frozenset[str]:
    """Similar and negative questions; a ``-`` before the latter."""
    similar, negative = entry.get("similar_questions") or (), entry.get("negative_questions") or ()
    return frozenset(plain(str(one)) for one in similar) | frozenset(f"-{plain(str(one))}" for one in negative)


def batches_of(entries: Sequence[Mapping[str, Any]], kb: str, mode: Mode, size: int = MAX_BATCH) -> list[Batch]:
    """The entries in imports of at most ``size``, with ids that a repeat of the plan gives again."""
    body = json.dumps([kb, mode, size, list(entries)], ensure_ascii=False, sort_keys=True)
    digest = hashlib.sha256(body.encode()).hexdigest()[:12]
    starts = range(0, len(entries), size)
    return [
        Batch(number, f"kbw-{digest}-{number:03}", tuple(entries[start : start + size]))
        for number, start in enumerate(starts, 1)
    ]


# ---------------------------------------------------------------- verification


@dataclass(frozen=True)
class Presence:
    """How the base compares with what was to be imported, by standard question."""

    missing: tuple[str, ...]
    twice: tuple[str, ...]
    changed: tuple[str, ...]
    partly: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Every card once, with its answers and all its questions."""
        return not (self.missing or self.twice or self.changed or self.partly)


def presence(entries: Sequence[Mapping[str, Any]], existing: Sequence[Mapping[str, Any]]) -> Presence:
    """Which cards are missing, there twice, there with other answers, or there without some of their questions.

    A server takes a card in part when a question of it leads to another entry, and says so only once (trap 5).
    """
    counts = Counter(plain(str(entry.get("standard_question"))) for entry in existing)
    there = {plain(str(entry.get("standard_question"))): entry for entry in existing}
    named = [(str(entry["standard_question"]), plain(str(entry["standard_question"])), entry) for entry in entries]
    once = [(question, entry, there[key]) for question, key, entry in named if counts[key] == 1]
    return Presence(
        missing=tuple(question for question, key, _ in named if not counts[key]),
        twice=tuple(question for question, key, _ in named if counts[key] > 1),
        changed=tuple(q for q, entry, found in once if list(found.get("answers") or []) != list(entry["answers"])),
        partly=tuple(q for q, entry, found in once if not _other_questions(entry) <= _other_questions(found)),
    )


@dataclass(frozen=True)
class Asked:
    """One question of a verification: what should be found, and what was, best first, with scores."""

    question: str
    expected: str
    found: tuple[str, ...]
    scores: tuple[float, ...] = ()


@dataclass(frozen=True)
class Verification:
    """Shares of all questions. ``magnets``: entries that crowd into the answers of others, with how often."""

    asked: int
    hit_at_1: float
    hit_at_3: float
    zero_hits: float
    magnets: tuple[tuple[str, int], ...]
    scores: tuple[float, ...]


def verification(asked: Sequence[Asked]) -> Verification:
    """The figures of a verification run."""
    total = len(asked) or 1
    ranks = [_rank(one) for one in asked]
    foreign = Counter(name for one in asked for name in one.found[:3] if plain(name) != plain(one.expected))
    least = max(MAGNET_LEAST, MAGNET_SHARE * len(asked))
    return Verification(
        asked=len(asked),
        hit_at_1=sum(rank == 1 for rank in ranks) / total,
        hit_at_3=sum(1 <= rank <= 3 for rank in ranks) / total,
        zero_hits=sum(not one.found for one in asked) / total,
        magnets=tuple((name, count) for name, count in foreign.most_common(20) if count >= least),
        scores=tuple(one.scores[0] for one in asked if one.scores),
    )


def _rank(one: Asked) -> int:
    """Where the expected entry was found, from 1; 0 when it was not."""
    wanted = plain(one.expected)
    return next((rank for rank, name in enumerate(one.found, 1) if plain(name) == wanted), 0)
