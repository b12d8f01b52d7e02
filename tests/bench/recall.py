"""How often the pages that a good answer needs are among the first 10 and 60: text leg and fused leg side by side.

    python -m tests.bench.recall [--misses] [--no-synonyms]

Questions are asked as people ask, not taken from titles; strict: *every* page that the answer needs must be there. Odd
questions of each set were used for tuning, even ones were not looked at while tuning. The real knowledge base
(``vue-zh``) takes part where it is at hand. Each set is asked on its own knowledge base, ``versions`` on a generated
one whose pages stand there in 7 nearly equal versions.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tasks.ports import RepoRef
from tests.bench import repository
from worker.adapters.kb_git.dense import Multilingual, is_installed
from worker.adapters.kb_git.mirror import Mirrors
from worker.adapters.kb_git.snapshot import GitKbReader, GitSnapshot
from worker.adapters.kb_git.terms import Synonyms
from worker.bootstrap import search_words
from worker.clock import SystemClock
from worker.demo.git_server import GitServer
from worker.settings import Settings

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUNDLE = ROOT.parent / "shared" / "kb" / "vue-zh.bundle"
DEPTHS = (10, 60)


@dataclass(frozen=True)
class Question:
    """``pages``: all that a good answer needs."""

    text: str
    pages: tuple[str, ...]
    is_held_out: bool


def questions(name: str) -> list[Question]:
    """One set; the first question is number 1."""
    lines = [
        line.split("\t")
        for line in (HERE / "questions" / f"{name}.tsv").read_text(encoding="utf-8").splitlines()
        if line and not line.startswith("#")
    ]
    return [Question(text, tuple(pages.split()), n % 2 == 0) for n, (text, pages) in enumerate(lines, start=1)]


def version_questions() -> list[Question]:
    """Every question names a subject and a version; only the page of that version is right."""
    found = []
    for number in range(40):
        entry, _ = repository.page(number * 11)
        thing, act = entry["keywords"][:2]
        version = entry["path"].split("/")[1]
        name = version if number % 3 else version.removeprefix("v")
        found.append(
            Question(f"{name} 里{thing}怎么{act}，编号 {number * 11 // 7} 的", (entry["path"],), number % 2 == 1)
        )
    return found


def ranked(snapshot: GitSnapshot, question: str) -> list[str]:
    return [hit.facts.path for hit in snapshot.rank(question, max(DEPTHS), passages=0)]


def wait_for_vectors(snapshot: GitSnapshot, question: str) -> None:
    """Vectors are made in the background, which the first question begins."""
    ranked(snapshot, question)
    filler = snapshot._vectors._filler if snapshot._vectors else None
    if filler is not None:
        filler.join()


def worlds(server: GitServer) -> Iterator[tuple[str, str, list[Question]]]:
    """Name of the set, repository, questions."""
    demo = ROOT / "config" / "demo" / "kb"
    files = {path.relative_to(demo).as_posix(): path.read_bytes() for path in demo.rglob("*") if path.is_file()}
    server.create("team", "demo", files)
    yield "demo", "demo", questions("demo")
    server.create("team", "versions", repository.content(2_100))
    yield "versions", "versions", version_questions()
    if BUNDLE.exists():
        server.create("team", "vue", from_bundle=BUNDLE)
        yield "vue-zh", "vue", questions("vue-zh")


def share(asked: Sequence[tuple[Question, list[str]]], depth: int) -> float:
    """Strict recall."""
    return sum(set(question.pages) <= set(found[:depth]) for question, found in asked) / max(len(asked), 1)


def main() -> int:
    """Ask and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--misses", action="store_true", help="name tuning questions whose pages are not in the first 10"
    )
    parser.add_argument("--no-synonyms", action="store_true", help="without config/synonyms.txt")
    options = parser.parse_args()
    rows: list[str] = []
    with tempfile.TemporaryDirectory() as folder, GitServer(Path(folder) / "server") as server:
        mirrors = Mirrors(Path(folder) / "cache", server.url, server.user, server.token, SystemClock())
        words = Synonyms() if options.no_synonyms else search_words(Settings.load())
        legs = {"text": GitKbReader(mirrors, words)}
        if is_installed():
            legs["fused"] = GitKbReader(mirrors, words, Multilingual())
        else:
            print("the extra `dense` is not installed: text leg only")
        pooled: dict[str, list[tuple[Question, list[str]]]] = {leg: [] for leg in legs}
        for name, repo, asked in worlds(server):
            for leg, reader in legs.items():
                snapshot = reader.latest(RepoRef("team", repo), fresh=True)
                wait_for_vectors(snapshot, asked[0].text)
                answers = [(question, ranked(snapshot, question.text)) for question in asked]
                rows += _rows(name, leg, answers)
                pooled[leg] += answers if name != "versions" else []
                if options.misses:
                    _print_misses(name, leg, answers)
        mirrors.close()
    for leg, answers in pooled.items():
        rows += _rows("all but versions", leg, answers)
    print("\n".join(rows))
    return 0


def _rows(name: str, leg: str, answers: list[tuple[Question, list[str]]]) -> list[str]:
    parts = {
        "tuned on": [answer for answer in answers if not answer[0].is_held_out],
        "held out": [answer for answer in answers if answer[0].is_held_out],
        "all": answers,
    }
    figures = "   ".join(
        f"{part} ({len(some)}): " + " ".join(f"@{depth} {share(some, depth):.2f}" for depth in DEPTHS)
        for part, some in parts.items()
    )
    return [f"{name:17} {leg:6} {figures}"]


def _print_misses(name: str, leg: str, answers: list[tuple[Question, list[str]]]) -> None:
    for question, found in answers:
        missing = [(p, found.index(p) + 1 if p in found else 0) for p in question.pages if p not in found[:10]]
        if missing and not question.is_held_out:
            print(f"{name} {leg}: {question.text}\n    wanted {missing}\n    got    {found[:4]}")


if __name__ == "__main__":
    sys.exit(main())
