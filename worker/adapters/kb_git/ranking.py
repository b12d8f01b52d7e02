"""Which pages answer a question best: field weights, versions, passages; must not read files or git.

A term counts by BM25 in the body and adds a fixed boost for each other field that holds it, both times its rarity: a
page about the thing comes before one that mentions it often. Single Chinese characters count a little, so that other
words for the same thing find it, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import tantivy

from worker.adapters.kb_git.page_index import ANY_VERSION, CHARACTERS, TEXT_FIELDS, Found, PageIndex
from worker.adapters.kb_git.terms import (
    Words,
    question_characters,
    question_terms,
    shortened,
    versions_asked,
    without_versions,
)

BOOSTS: Mapping[str, float] = {"title": 1.6, "keywords": 0.7, "headings": 0.6, "place": 0.6}

_OTHER_VERSION = 0.6
_NO_VERSION = 0.7
_OLDER_VERSION = 0.9
_SPARE = 4
_MANY_PAGES, _MOST_TELLING = 20_000, 12
# Chosen on the tuned-on half of tests/bench/recall.py.
_CHARACTER = 0.45
_FUSION = 10
_NEAR, _NEAR_IF_SURE, _SURE = 0.85, 0.4, 0.4
_MISSPELT, _LONG_WORD, _MOST_MISSPELT = 0.5, 5, 3


@dataclass(frozen=True)
class Query:
    """A question made ready for one index.

    ``worth``: what each of its terms tells, by rarity there · ``known``: share of its own terms that some page holds.
    """

    worth: Mapping[str, float]
    known: float
    versions: Sequence[str]
    fields: Mapping[str, tantivy.Query] = field(default_factory=dict)


def understand(index: PageIndex, question: str, history: Sequence[str] = (), words: Words | None = None) -> Query:
    """What ``question`` asks of this index."""
    versions = _versions(index, question)
    if versions:
        question = without_versions(question)
    weights = question_terms(question, history, words)
    known: dict[str, dict[str, int]] = {}
    worth: dict[str, float] = {}
    for term, weight in weights.items():
        counts = {name: index.frequency(name, term) for name in TEXT_FIELDS}
        if pages := max(counts.values()):
            known[term] = counts
            worth[term] = weight * _rarity(index, pages)
    if index.size > _MANY_PAGES:  # there the common terms cost most and tell least
        worth = dict(sorted(worth.items(), key=lambda item: -item[1])[:_MOST_TELLING])
    fields = {name: _clauses(index, name, weights, worth, known) for name in TEXT_FIELDS}
    own = question_terms(question, history)
    unknown = [term for term in own if term not in known]
    fields["similar"] = _misspelt(index, unknown)
    if index.size <= _MANY_PAGES:
        fields[CHARACTERS] = [
            tantivy.Query.boost_query(index.term(CHARACTERS, char), _CHARACTER)
            for char in sorted(question_characters(question, history))
        ]
    return Query(
        worth,
        1 - len(unknown) / max(len(own), 1),
        versions,
        {name: _any(clauses) for name, clauses in fields.items() if clauses},
    )


def _versions(index: PageIndex, question: str) -> list[str]:
    """Versions that the question names, each as exactly as pages of it are known."""
    asked = (
        next((v for v in shortened(version) if index.frequency("version", v)), "")
        for version in versions_asked(question)
    )
    return [version for version in asked if version]


def _clauses(
    index: PageIndex,
    name: str,
    weights: Mapping[str, float],
    worth: Mapping[str, float],
    known: Mapping[str, Mapping[str, int]],
) -> list[tantivy.Query]:
    """What one field adds for each term that it holds somewhere."""
    terms = [term for term in worth if known[term][name]]
    if name == "body":
        return [tantivy.Query.boost_query(index.term(name, term), weights[term]) for term in terms]
    # Rarity in this field: a word that many pages mention and few have in their title tells much there.
    return [
        tantivy.Query.const_score_query(
            index.term(name, term), BOOSTS[name] * weights[term] * _rarity(index, known[term][name])
        )
        for term in terms
    ]


def _misspelt(index: PageIndex, unknown: Sequence[str]) -> list[tantivy.Query]:
    """Pages with words that a word of the question, found nowhere, may have been meant for."""
    clauses = []
    words = [term for term in unknown if term.isascii() and term.isalpha() and len(term) >= _LONG_WORD]
    for word in words[:_MOST_MISSPELT]:
        meant = index.similar("body", word, 2 if len(word) >= 2 * _LONG_WORD else 1)
        if pages := index.count(meant):
            clauses.append(tantivy.Query.const_score_query(meant, _MISSPELT * _rarity(index, pages)))
    return clauses


def _rarity(index: PageIndex, pages: int) -> float:
    """What a word tells that so many pages hold (BM25's inverse document frequency)."""
    pages = min(pages, index.size)
    return math.log(1 + (index.size - pages + 0.5) / (pages + 0.5))


def rank(index: PageIndex, query: Query, limit: int) -> list[Found]:
    """The best pages, best first; none without any of the terms."""
    if not query.fields or limit <= 0:
        return []
    everything = _any(list(query.fields.values()))
    if not query.versions:
        spare = _SPARE if index.frequency("version", ANY_VERSION) else 1
        return _newest_first(index.search(everything, spare * limit))[:limit]
    asked = _any([index.term("version", version) for version in query.versions])
    versioned = index.term("version", ANY_VERSION)
    must, no = tantivy.Occur.Must, tantivy.Occur.MustNot
    parts = [
        ([(must, everything), (must, tantivy.Query.const_score_query(asked, 0.0))], 1.0),
        ([(must, everything), (no, versioned)], _NO_VERSION),
        ([(must, everything), (must, tantivy.Query.const_score_query(versioned, 0.0)), (no, asked)], _OTHER_VERSION),
    ]
    found = [
        hit.weighed(factor)
        for clauses, factor in parts
        for hit in index.search(tantivy.Query.boolean_query(clauses), limit)
    ]
    return _sorted(found)[:limit]


def fused(query: Query, text: Sequence[Found], near: Sequence[Found], limit: int) -> list[Found]:
    """Both rankings as one, by reciprocal rank (Cormack et al., SIGIR 2009): scores need no common scale.

    Nearness in meaning weighs little where the pages use the question's words: there it would rather do harm.
    """
    weight_near = _NEAR if query.known < _SURE else _NEAR_IF_SURE
    scores: dict[str, float] = {}
    pages: dict[str, Found] = {}
    for leg, weight in ((text, 1.0), (near, weight_near)):
        for place, hit in enumerate(leg):
            scores[hit.path] = scores.get(hit.path, 0.0) + weight / (_FUSION + place)
            pages.setdefault(hit.path, hit)
    best = sorted(scores, key=lambda path: (-scores[path], path))[:limit]
    return [Found(100.0 * scores[path], pages[path].address, pages[path].stored) for path in best]


def fitting(found: Sequence[Found], query: Query, limit: int) -> list[Found]:
    """Of pages that hardly differ only those of an asked version, else the newest, in the order given."""
    if query.versions:
        kept = [hit for hit in found if not hit.versions or hit.versions & set(query.versions)]
    else:
        newest: dict[str, tuple[int, ...]] = {}
        for hit in found:
            name, version = hit.family
            newest[name] = max(newest.get(name, ()), version)
        kept = [hit for hit in found if hit.family[1] == newest[hit.family[0]]]
    return kept[:limit]


def reasons(index: PageIndex, query: Query, found: Found) -> dict[str, float]:
    """What each field gave this page, before versions were weighed."""
    gains = {name: index.explain(part, found) for name, part in query.fields.items()}
    return {name: round(gain, 3) for name, gain in gains.items() if gain}


def _newest_first(found: Sequence[Found]) -> list[Found]:
    """Of the versions of one page the newest stands for all: the others, nearly equal, come further down."""
    newest: dict[str, tuple[int, ...]] = {}
    kin = [hit.family for hit in found]
    for name, version in kin:
        newest[name] = max(newest.get(name, ()), version)
    return _sorted(
        hit if version == newest[name] else hit.weighed(_OLDER_VERSION)
        for hit, (name, version) in zip(found, kin, strict=True)
    )


def _sorted(found: Iterable[Found]) -> list[Found]:
    return sorted(found, key=lambda hit: (-hit.score, hit.path))


def _any(queries: Sequence[tantivy.Query]) -> tantivy.Query:
    return tantivy.Query.boolean_query([(tantivy.Occur.Should, query) for query in queries])
