"""In-memory BM25 over pages, for Chinese and English; must not read the repository or know what a page's facts mean.

Postings are kept for each document (page content and metadata as they were at some commit), so a new commit adds only
what changed. A large on-disk index takes this module's place behind ``Snapshot.rank``.
"""

from __future__ import annotations

import math
import re
import threading
import unicodedata
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tasks.kb.headings import headings

MAX_PASSAGE = 1_200

_K1, _B = 1.5, 0.75
_TITLE, _KEYWORD, _HEADING, _PATH = 2.5, 0.7, 0.5, 0.5
_MIN_PASSAGE = 400
_MAX_QUERY_TERMS = 200
_PASSAGE_TERMS = 12
_MAX_WORD = 64

_CJK = "\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
_BIGRAM = re.compile(f"(?=([{_CJK}]{{2}}))[{_CJK}]")
_LONE = re.compile(f"(?<![{_CJK}])[{_CJK}](?![{_CJK}])")
_WORD = re.compile(f"[^\\W{_CJK}]+")
_WORD_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_LINE = re.compile(r"[^\n]*\n|[^\n]+\Z")
_ASKING = re.compile(
    "请问|请教|为什么|为啥|怎么样|怎样|怎么|如何|什么|哪些|哪个|哪里|是否|能否|可否|多少|有没有|是不是|能不能|可不可以|"
    "应该|可以|需要|一下|告诉我|介绍|说明|解释|[的了吗呢吧啊呀么我你们]"
)
_STOP_WORDS = frozenset(
    "a an and are as at be by can do does for from how i in is it my of on or our should the this to what when where "  # noqa: SIM905  # a list of words reads best as words
    "which who why with you".split()
)


@dataclass(frozen=True)
class Document:
    """One page as search sees it. Equal documents share their postings: ``blob`` stands for the body's content."""

    path: str
    blob: str
    title: str
    keywords: tuple[str, ...]
    body: str

    @property
    def key(self) -> tuple[str, str, str, tuple[str, ...]]:
        """What makes two documents the same to search."""
        return (self.path, self.blob, self.title, self.keywords)


@dataclass(frozen=True)
class Hit:
    """A page found; ``score`` compares only within one answer; ``passage`` is its best text for the question."""

    path: str
    score: float
    passage: str


class SearchIndex:
    """Postings of all documents seen so far. Safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers: dict[tuple[str, str, str, tuple[str, ...]], int] = {}
        self._documents: list[_Indexed] = []
        self._postings: dict[str, _Postings] = {}

    def view(self, documents: Iterable[Document]) -> View:
        """The given documents as one searchable set; what is not indexed yet is indexed now."""
        with self._lock:
            return View(self, [self._number(document) for document in documents])

    @property
    def size(self) -> int:
        """Documents indexed so far, those of older commits too."""
        return len(self._documents)

    def postings(self, term: str) -> _Postings | None:
        """Where ``term`` occurs."""
        return self._postings.get(term)

    def document(self, number: int) -> _Indexed:
        """An indexed document by its number."""
        return self._documents[number]

    def _number(self, document: Document) -> int:
        number = self._numbers.get(document.key)
        if number is None:
            number = self._numbers[document.key] = len(self._documents)
            counts, boosts = weigh(document)
            self._documents.append(_Indexed(document, counts.total()))
            for term in counts.keys() | boosts.keys():
                postings = self._postings.setdefault(term, _Postings())
                postings.add(number, counts.get(term, 0), boosts.get(term, 0.0))
        return number


class View:
    """The documents of one commit, ranked by BM25 with weighted fields."""

    def __init__(self, index: SearchIndex, numbers: Sequence[int]) -> None:
        self._index = index
        self._live = bytearray(max(numbers, default=-1) + 1)
        for number in numbers:
            self._live[number] = 1
        self._count = len(numbers)
        total = sum(index.document(number).length for number in numbers)
        average = total / self._count if total else 1.0
        self._norms = {number: _K1 * (1 - _B + _B * index.document(number).length / average) for number in numbers}

    def rank(self, question: str, limit: int) -> list[Hit]:
        """The best documents for ``question``, best first; none of those without any of its terms."""
        scores: dict[int, float] = {}
        worth: dict[str, float] = {}
        for term, weight in question_terms(question).items():
            found = self._occurrences(term)
            if not found:
                continue
            worth[term] = weight * math.log(1 + (self._count - len(found) + 0.5) / (len(found) + 0.5))
            for number, count, boost in found:
                gain = count * (_K1 + 1) / (count + self._norms[number]) + boost
                scores[number] = scores.get(number, 0.0) + worth[term] * gain
        best = sorted(scores.items(), key=lambda item: (-item[1], self._index.document(item[0]).path))[:limit]
        telling = dict(sorted(worth.items(), key=lambda item: -item[1])[:_PASSAGE_TERMS])
        return [self._hit(number, score, telling) for number, score in best]

    def _occurrences(self, term: str) -> list[tuple[int, int, float]]:
        postings = self._index.postings(term)
        if postings is None:
            return []
        live, known = self._live, len(self._live)
        rows = zip(postings.numbers, postings.counts, postings.boosts, strict=False)
        return [row for row in rows if row[0] < known and live[row[0]]]

    def _hit(self, number: int, score: float, worth: dict[str, float]) -> Hit:
        document = self._index.document(number)
        return Hit(document.path, round(score, 6), document.best_passage(worth))


class _Postings:
    """Of one term: document numbers (rising), how often it is in the body, and what title and the like add."""

    __slots__ = ("boosts", "counts", "numbers")

    def __init__(self) -> None:
        self.numbers = array("I")
        self.counts = array("I")
        self.boosts = array("f")

    def add(self, number: int, count: int, boost: float) -> None:
        self.counts.append(count)
        self.boosts.append(boost)
        self.numbers.append(number)  # last, so that a reader without the lock never sees a number without the rest


class _Indexed:
    """A document's text for passages. ``lowered`` is kept: lowering 60 pages a question costs too much."""

    __slots__ = ("body", "borders", "length", "lowered", "path")

    def __init__(self, document: Document, length: int) -> None:
        self.path = document.path
        self.body = document.body
        self.length = length
        lowered = document.body.lower()
        self.lowered = lowered if len(lowered) == len(document.body) else document.body  # else offsets would differ
        self.borders = _borders(document.body)

    def best_passage(self, worth: dict[str, float]) -> str:
        """The piece between two neighbouring borders that holds most of the terms, by worth; the first of equals."""
        best, best_score = (0, 0), -1.0
        for start, end in pairwise(self.borders):
            score = sum(value for term, value in worth.items() if self.lowered.find(term, start, end) >= 0)
            if score > best_score:
                best, best_score = (start, end), score
        return self.body[slice(*best)].strip()


# ---------------------------------------------------------------- terms


def count_terms(text: str) -> Counter[str]:
    """Search terms of ``text``: bigrams of CJK runs (a lone character as it is), lower-cased words, and the parts of
    camelCase and snake_case words beside the whole.
    """
    text = unicodedata.normalize("NFKC", text)
    counts = Counter(_BIGRAM.findall(text))
    counts.update(_LONE.findall(text))
    for word, count in Counter(_WORD.findall(text)).items():
        for term in _word_terms(word):
            counts[term] += count
    return counts


def _word_terms(word: str) -> set[str]:
    whole = word.lower()[:_MAX_WORD]
    parts = _WORD_PART.findall(word[:_MAX_WORD]) if word.isascii() else []
    return {whole, *(part.lower() for part in parts)}


def question_terms(question: str) -> dict[str, float]:
    """The question's terms with their weights; words that only ask (如何, 什么, how) are left out if others remain."""
    text = unicodedata.normalize("NFKC", question)
    found = count_terms(_ASKING.sub(" ", text))
    for word in _STOP_WORDS:
        del found[word]
    found = found or count_terms(text)
    return {term: 1.0 + math.log(count) for term, count in found.most_common(_MAX_QUERY_TERMS)}


def weigh(document: Document) -> tuple[Counter[str], dict[str, float]]:
    """How often each term is in the body, and the boost of terms in title, keywords, headings and path.

    A boost stands beside the body's frequency instead of adding to it: BM25 saturates, and a page that only mentions a
    term often would count like the page that is about it. A short title is worth more a term than a long one.
    """
    title = set(count_terms(document.title))
    boosts = dict.fromkeys(title, _TITLE / (1 + math.log(len(title) or 1)))
    fields = [(_KEYWORD, document.keywords), (_PATH, [document.path.removesuffix(".md")])]
    fields.append((_HEADING, [heading.text for heading in headings(document.body)]))
    for weight, texts in fields:
        for term in count_terms("\n".join(texts)):
            boosts[term] = boosts.get(term, 0.0) + weight
    return count_terms(document.body), boosts


# ---------------------------------------------------------------- passages


def _borders(body: str) -> tuple[int, ...]:
    """Offsets that cut ``body`` into pieces of at most ``MAX_PASSAGE`` characters, at line ends, headings preferred."""
    starts = [0]
    for line in _LINE.finditer(body):
        start, end = line.span()
        used = start - starts[-1]
        if used and (end - starts[-1] > MAX_PASSAGE or (used >= _MIN_PASSAGE and line[0].startswith("#"))):
            starts.append(start)
        while end - starts[-1] > MAX_PASSAGE:  # one line longer than a passage
            starts.append(starts[-1] + MAX_PASSAGE)
    return (*starts, len(body)) if body else (0, 0)
