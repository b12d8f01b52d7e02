"""How often the pages that a good answer needs come first, in the first 10 and 60: each leg, both, the plain way.

    python -m tests.bench.recall [--misses] [--no-synonyms]

Questions are asked as people ask, not taken from titles; strict: *every* page that the answer needs must be there. The
tuned-on half of each set chose the weights; of the held-out half no single question was looked at, but its sums were in
view (``recall_sets``). The sets named hard, handbook and follow-up were written before any ranking of them was seen.
``counting`` is the plain way: how often pieces of the question stand in a page's metadata. Exit code 1 when an aim is
missed on the later, harder sets: in the first two text alone finds nearly all, which leaves nothing to gain.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tasks.ports import RepoRef
from tests.bench.recall_sets import Question, World, by_counting, worlds
from worker.adapters.kb_git.dense import Multilingual, is_installed
from worker.adapters.kb_git.mirror import Mirrors
from worker.adapters.kb_git.snapshot import GitKbReader, GitSnapshot
from worker.adapters.kb_git.terms import Synonyms
from worker.bootstrap import search_words
from worker.clock import SystemClock
from worker.demo.git_server import GitServer
from worker.settings import Settings

DEPTHS = (1, 10, 60)
FILL_S = 600.0
GENERATED = "versions"
"""One vector a page stands for 7 nearly equal versions there: text alone is asked, and it is in no sum."""
FIRST_SETS = frozenset({"vue-zh", "demo"})
FIRST, LATER, ALL = "the first two sets", "the later, harder", "all sets"
"""The first two sets turned out to be near the pages' own words; what people call things otherwise is in the later."""

TEXT_AT_10, GAIN_AT_10, FUSED_AT_10, FUSED_AT_60 = 0.55, 0.08, 0.75, 0.90

Answers = list[tuple[Question, list[str]]]


def answers(snapshot: GitSnapshot, asked: Sequence[Question]) -> Iterator[tuple[str, Answers]]:
    """What each way of searching finds for the questions, by its name."""
    catalog = [facts.document() for facts in snapshot.listing(10_000, ())]
    yield "counting", [(question, by_counting(catalog, question.text, max(DEPTHS))) for question in asked]
    legs = [(question, snapshot.legs(question.text, max(DEPTHS), question.history)) for question in asked]
    yield "text", [(question, [hit.path for hit in found.text]) for question, found in legs]
    if any(found.near for _, found in legs):
        yield "dense", [(question, [hit.path for hit in found.near]) for question, found in legs]
        yield "fused", [(question, [hit.path for hit in found.together(max(DEPTHS))]) for question, found in legs]


def fill(snapshot: GitSnapshot) -> str:
    """Make the vectors, which the first question begins in the background; what that took."""
    started, cpu = time.perf_counter(), time.process_time()
    snapshot.rank("x", 1, passages=0)
    snapshot.wait_for_vectors(FILL_S)
    return f"{time.perf_counter() - started:.1f} s, {time.process_time() - cpu:.1f} s CPU"


def share(answered: Answers, depth: int) -> float:
    """Strict recall."""
    return sum(question.is_met(found[:depth]) for question, found in answered) / max(len(answered), 1)


def row(name: str, leg: str, answered: Answers) -> str:
    """One line of the table."""
    parts = {
        "tuned on": [answer for answer in answered if not answer[0].is_held_out],
        "held out": [answer for answer in answered if answer[0].is_held_out],
        "all": answered,
    }
    figures = "   ".join(
        f"{part} ({len(some)}): " + " ".join(f"@{depth} {share(some, depth):.2f}" for depth in DEPTHS)
        for part, some in parts.items()
    )
    return f"{name:18} {leg:9} {figures}"


def misses(name: str, leg: str, answered: Answers) -> Iterator[str]:
    """Tuned-on questions whose pages are not in the first 10."""
    for question, found in answered:
        if question.is_held_out or question.is_met(found[:10]):
            continue
        places = {page: found.index(page) + 1 if page in found else 0 for group in question.needs for page in group}
        yield f"{name} {leg}: {question.text}\n    wanted {places}\n    got    {found[:4]}"


def main() -> int:
    """Ask and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--misses", action="store_true", help="name tuned-on questions that miss the first 10")
    parser.add_argument("--no-synonyms", action="store_true", help="without config/synonyms.txt")
    options = parser.parse_args()
    words = Synonyms() if options.no_synonyms else search_words(Settings.load())
    if not is_installed():
        print("the extra `dense` is not installed: text leg only")
    pooled: dict[str, dict[str, Answers]] = {}
    with tempfile.TemporaryDirectory() as folder, GitServer(Path(folder) / "server") as server:
        mirrors = Mirrors(Path(folder) / "cache", server.url, server.user, server.token, SystemClock())
        readers = {True: GitKbReader(mirrors, words, Multilingual() if is_installed() else None)}
        readers[False] = GitKbReader(mirrors, words)
        for world in worlds(server):
            snapshot = readers[world.repo != GENERATED].latest(RepoRef("team", world.repo), fresh=True)
            print(f"\n{world.repo}: {snapshot.page_count} pages, vectors made in {fill(snapshot)}")
            ask(world, snapshot, pooled, tells_misses=options.misses)
        mirrors.close()
    for pool, legs in pooled.items():
        print()
        for leg, answered in legs.items():
            print(row(pool, leg, answered))
    return report_aims(pooled[LATER])


def report_aims(legs: dict[str, Answers]) -> int:
    """Print each aim beside what was reached; 1 when one is missed."""
    text, fused = share(legs["text"], 10), share(legs.get("fused", []), 10)
    aims = [("text @10", text, TEXT_AT_10)]
    if "fused" in legs:
        aims += [
            ("gained by the second leg @10", fused - text, GAIN_AT_10),
            ("fused @10", fused, FUSED_AT_10),
            ("fused @60", share(legs["fused"], 60), FUSED_AT_60),
        ]
    print()
    for name, reached, aim in aims:
        print(f"{LATER}: {name:30} {reached:.3f}  (aim: {aim})")
    return int(any(reached < aim for _, reached, aim in aims))


def ask(world: World, snapshot: GitSnapshot, pooled: dict[str, dict[str, Answers]], *, tells_misses: bool) -> None:
    """All sets of one repository, printed; the answers are added to the pools of each set."""
    for name, asked in world.sets.items():
        for leg, answered in answers(snapshot, asked):
            print(row(name, leg, answered))
            pools = (FIRST if name in FIRST_SETS else LATER, ALL) if world.repo != GENERATED else ()
            for pool in pools:
                pooled.setdefault(pool, {}).setdefault(leg, []).extend(answered)
            if tells_misses:
                print("\n".join(misses(name, leg, answered)))


if __name__ == "__main__":
    sys.exit(main())
