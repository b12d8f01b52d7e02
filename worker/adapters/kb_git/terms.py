"""What is searched for: terms of Chinese and English text, of questions and of versions; must not know an index.

Chinese has no blanks between words, so every two neighbouring characters are a term; other scripts are cut into words.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Protocol

_MAX_QUERY_TERMS = 60
_MAX_WORD = 64
_FEW_TERMS = 3
_RECENT = (0.6, 0.3, 0.2)
_CITED = 0.4

_CJK = "\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
_RUN = re.compile(f"[{_CJK}]+")
_WORD = re.compile(f"[^\\W{_CJK}]+")
# What NFKC could change in a term: full-width forms, compatibility characters, marks that compose. Rare in bodies.
_COMPATIBLE = re.compile(
    "[\u00aa\u00b2-\u00be\u0132-\u017f\u01c4-\u01f3\u02b0-\u036f\u1100-\u11ff\u1d2c-\u1dbf\u2070-\u209c\u2100-\u2189"
    "\u2460-\u24ea\u2e80-\u2fdf\u3099-\u309c\u3130-\u318e\u3200-\u33ff\uf900-\ufaff\ufb00-\ufdff\uff10-\uff19"
    "\uff21-\uff3a\uff41-\uff5a\uff66-\uffdc\U0001d400-\U0001d7ff\U0002f800-\U0002fa1f]"
)
_WORD_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_ASKING = re.compile(
    "请问|请教|为什么|为啥|怎么样|怎样|怎么办|怎么|如何|什么|哪些|哪个|哪里|是否|能否|可否|多少|有没有|是不是|能不能|"
    "可不可以|应该|可以|需要|一下|告诉我|介绍|说明|解释|有啥|咋|想要|希望|知道|觉得|[的了吗呢吧啊呀么我你们]"
)
_POINTING = re.compile("这个|那个|这些|那些|这种|那种|上面|刚才|前面|上述|它们|[它他她那这该其]")
_STOP_WORDS = frozenset(
    "a an and any are as at be been by can could did do does for from get had has have how i if in into is it its me "  # noqa: SIM905  # a list of words reads best as words
    "my of on or our should so that the their them then there these they this those to use using want was we were what "
    "when where which who why will with would you your".split()
)
_POINTING_WORDS = re.compile(r"\b(?:it|its|that|this|these|those|they|them|the same)\b", re.IGNORECASE)

_VERSION = re.compile(
    r"(?<![A-Za-z0-9_.])(?:[A-Za-z]+[-_ ]?)?[vV]?(\d{1,4}(?:\.\d{1,4}){1,3})(?!\.?\d)"
    r"|(?<![A-Za-z0-9_])[vV](\d{1,3})(?![A-Za-z0-9_.])"
    r"|(?<![A-Za-z0-9_.])[vV]?(\d{1,3})\.x(?![A-Za-z0-9_])"
)
_DIGIT = re.compile(r"\d")
_PATH_VERSION = re.compile(
    r"(?<![A-Za-z0-9])(?:[A-Za-z]+[-_])*[vV]?(\d{1,4}(?:[._]\d{1,4})+)"
    r"|(?<![A-Za-z0-9])(?:[A-Za-z]+[-_])*[vV](\d{1,4}(?:-\d{1,4})*)(?![A-Za-z0-9])"
    r"|(?<![A-Za-z0-9])(?:[A-Za-z]+[-_])*[vV]?(\d{1,3})\.x(?![A-Za-z0-9])"
)


class Words(Protocol):
    """Further words for what a question says."""

    def beside(self, text: str) -> Iterable[tuple[str, float]]:
        """Words that mean what words of ``text`` mean, each with how sure that is (0-1)."""


@dataclass(frozen=True)
class Synonyms:
    """Groups of words of equal meaning, Chinese and English. A group is one line, its words parted by commas."""

    groups: Sequence[tuple[str, ...]] = ()
    weight: float = 0.5
    _by_word: dict[str, list[int]] = field(default_factory=dict, init=False, repr=False)
    _chinese: list[str] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        for number, group in enumerate(self.groups):
            for word in group:
                self._by_word.setdefault(word, []).append(number)
        self._chinese.extend(word for word in self._by_word if not word.isascii() or " " in word)

    @classmethod
    def read(cls, text: str) -> Synonyms:
        """The groups of a file; ``#`` begins a remark, a line with fewer than two words says nothing."""
        lines = (line.partition("#")[0] for line in text.splitlines())
        groups = [tuple(word for part in line.split(",") if (word := _folded(part).strip())) for line in lines]
        return cls(tuple(group for group in groups if len(group) > 1))

    def beside(self, text: str) -> list[tuple[str, float]]:
        """See :class:`Words`."""
        lowered = _folded(text)
        said = {word for word in _WORD.findall(lowered) if word in self._by_word}
        said |= {word for word in self._chinese if word in lowered}
        numbers = dict.fromkeys(number for word in sorted(said) for number in self._by_word[word])
        return [(word, self.weight) for number in numbers for word in self.groups[number] if word not in said]


def terms_of(text: str) -> list[str]:
    """Search terms of ``text``, as often as they occur, in no order: bigrams of CJK runs (a lone character as it is),
    lower-cased words, and the parts of camelCase and snake_case words beside the whole.
    """
    if _COMPATIBLE.search(text):
        text = unicodedata.normalize("NFKC", text)
    found: list[str] = []
    if not text.isascii():
        for run in _RUN.findall(text):
            if len(run) == 1:
                found.append(run)
            else:
                found += [run[at : at + 2] for at in range(len(run) - 1)]
    for word in _WORD.findall(text):
        found += _word_terms(word)
    return found


def characters_of(text: str) -> set[str]:
    """The single CJK characters of ``text``: 生孩子 and 生育 have no bigram in common."""
    different = unicodedata.normalize("NFKC", "".join(set(text)))
    return set("".join(_RUN.findall(different)))


def count_terms(text: str) -> Counter[str]:
    """How often each search term occurs in ``text``."""
    return Counter(terms_of(text))


@lru_cache(20_000)
def _word_terms(word: str) -> tuple[str, ...]:
    whole = word.lower()[:_MAX_WORD]
    if not word.isascii():
        return (whole,)
    parts = {part.lower() for part in _WORD_PART.findall(word[:_MAX_WORD])}
    return tuple({stem(term) for term in {whole, *parts}})


def stem(word: str) -> str:
    """English plurals and ``-ing``/``-ed`` forms as one; crude on purpose, both sides go through it."""
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    if len(word) > 5 and word.endswith("ing"):
        return _undoubled(word[:-3])
    if len(word) > 4 and word.endswith("ed"):
        return _undoubled(word[:-2])
    if len(word) > 4 and word.endswith(("sses", "shes", "ches", "xes")):
        return word[:-2]
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return stem(word[:-1])
    return word.removesuffix("e") if len(word) > 3 else word


def _undoubled(word: str) -> str:
    doubled = len(word) > 3 and word[-1] == word[-2] and word[-1] not in "lsz"
    return word[:-1] if doubled else word.removesuffix("e")


# ---------------------------------------------------------------- questions


def question_terms(question: str, history: Sequence[str] = (), words: Words | None = None) -> dict[str, float]:
    """The question's terms with their weights; words that only ask (如何, 什么, how) are left out if others remain.

    ``history``: earlier questions and titles of cited pages, the newest last. They weigh in when the question points
    back (那它…) or says little by itself.
    """
    own = _content(question)
    weights = {term: 1.0 + math.log(count) for term, count in own.items()}
    for word, weight in words.beside(question) if words else ():
        _add(weights, count_terms(word), weight)
    if history and is_follow_up(question):
        for text, weight in zip(reversed(history), _RECENT, strict=False):
            _add(weights, _content(text), weight)
    best = sorted(weights.items(), key=lambda item: -item[1])
    return dict(best[:_MAX_QUERY_TERMS])


def question_characters(question: str, history: Sequence[str] = ()) -> set[str]:
    """Single characters to look for beside the terms; of the last question, too, when this one leans on it."""
    texts = [question, *history[-1:]] if history and is_follow_up(question) else [question]
    return {char for text in texts for char in characters_of(_POINTING.sub(" ", _ASKING.sub(" ", text)))}


def is_follow_up(question: str) -> bool:
    """Whether the question leans on what was said before."""
    text = unicodedata.normalize("NFKC", question)
    points_back = bool(_POINTING.search(_ASKING.sub(" ", text)) or _POINTING_WORDS.search(text))
    return points_back or len(_content(question)) <= _FEW_TERMS


def _content(text: str) -> Counter[str]:
    text = unicodedata.normalize("NFKC", text)
    found = count_terms(_POINTING.sub(" ", _ASKING.sub(" ", text)))
    for word in _STOP_WORDS:
        del found[word]
    return found or count_terms(text)


def _add(weights: dict[str, float], terms: Iterable[str], weight: float) -> None:
    for term in terms:
        if term not in _STOP_WORDS:
            weights[term] = max(weights.get(term, 0.0), weight)


# ---------------------------------------------------------------- versions


def versions_asked(question: str) -> list[str]:
    """Versions that a question names: ``7.5`` for ``v7.5``, ``TiDB 7.5``; ``8`` for ``v8`` and ``8.x``."""
    found = _VERSION.findall(unicodedata.normalize("NFKC", question))
    return list(dict.fromkeys(max(groups) for groups in found))


def without_versions(question: str) -> str:
    """The question without the versions that it names: the 5 of 7.5 is no word to look for."""
    return _VERSION.sub(" ", unicodedata.normalize("NFKC", question))


def versions_of(path: str, labels: Iterable[str] = ()) -> set[str]:
    """Versions that a page is for, as its path and its labels (title, project ids) name them, each with its beginnings.

    ``docs/v7.5.1/x.md`` is for ``7.5.1``, ``7.5`` and ``7``.
    """
    names = [max(groups) for groups in _PATH_VERSION.findall(path)]
    names += [max(groups) for label in labels for groups in _VERSION.findall(label)]
    found = set()
    for name in names:
        parts = re.split(r"[._-]", name)
        found |= {".".join(parts[:count]) for count in range(1, len(parts) + 1)}
    return found


def family(path: str) -> tuple[str, tuple[int, ...]]:
    """A path without its version, equal for all versions of one page, and the version as numbers."""
    if not _DIGIT.search(path):
        return path, ()
    numbers: list[int] = []

    def drop(match: re.Match[str]) -> str:
        numbers.extend(int(part) for part in re.split(r"[._-]", max(filter(None, match.groups()))))
        return "*"

    return _PATH_VERSION.sub(drop, path), tuple(numbers)


def shortened(version: str) -> list[str]:
    """``7.5.1`` → ``7.5.1``, ``7.5``, ``7``: which to look for, one after the other."""
    parts = version.split(".")
    return [".".join(parts[:count]) for count in range(len(parts), 0, -1)]


def _folded(text: str) -> str:
    return unicodedata.normalize("NFKC", text).lower()
