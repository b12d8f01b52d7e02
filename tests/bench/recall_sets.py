"""Questions, the knowledge bases they are asked on, and the plain way to search that stands beside ours.

A question file has a question and its pages a line, parted by a tab. ``a -> b`` is the question b after the question a.
Pages parted by a blank are all needed; of ``a|b`` either will do. Odd lines are for tuning, even lines are held out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.bench import repository
from worker.demo.git_server import GitServer

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
QUESTIONS = HERE / "questions"
BUNDLE = ROOT.parent / "shared" / "kb" / "vue-zh.bundle"

_PIECE = re.compile(r"[a-z0-9_.$@-]+|[\u4e00-\u9fff]+")


@dataclass(frozen=True)
class Question:
    """``needs``: pages that a good answer needs, of each group one · ``history``: what was asked before."""

    text: str
    needs: tuple[frozenset[str], ...]
    is_held_out: bool
    history: tuple[str, ...] = ()

    def is_met(self, found: Sequence[str]) -> bool:
        """Strict: everything that the answer needs is there."""
        return all(group & set(found) for group in self.needs)


@dataclass(frozen=True)
class World:
    """A repository on the server and the sets of questions that are asked on it."""

    repo: str
    sets: Mapping[str, list[Question]]


def questions(name: str) -> list[Question]:
    """One set; the first question is number 1."""
    text = (QUESTIONS / f"{name}.tsv").read_text(encoding="utf-8")
    lines = [line.split("\t") for line in text.splitlines() if line and not line.startswith("#")]
    return [_question(asked, pages, number) for number, (asked, pages) in enumerate(lines, start=1)]


def _question(asked: str, pages: str, number: int) -> Question:
    *history, text = asked.split(" -> ")
    needs = tuple(frozenset(group.split("|")) for group in pages.split())
    return Question(text, needs, number % 2 == 0, tuple(history))


_VERSION_FORMS = (
    "{v} 里{thing}怎么{act}",
    "我们线上是 {n} 版本，{thing}要{act}",
    "{thing}{act}（{n}.x）",
    "{n}.2 {thing} {act}",
)


def version_questions(*, names_number: bool) -> list[Question]:
    """Every question names a subject and a version, some the page's number as well; only one page is right."""
    found = []
    for number in range(40):
        entry, _ = repository.page(number * 11)
        thing, act = entry["keywords"][:2]
        version = entry["path"].split("/")[1]
        form = _VERSION_FORMS[0 if names_number else number % len(_VERSION_FORMS)]
        asked = form.format(v=version, n=version.removeprefix("v"), thing=thing, act=act)
        if names_number:
            asked += f"，编号 {number * 11 // 7} 的"
        found.append(Question(asked, (frozenset([entry["path"]]),), number % 2 == 1))
    return found


def worlds(server: GitServer) -> Iterator[World]:
    """The repositories, made on ``server``; the real one where it is at hand."""
    demo = ROOT / "config" / "demo" / "kb"
    files = {path.relative_to(demo).as_posix(): path.read_bytes() for path in demo.rglob("*") if path.is_file()}
    server.create("team", "demo", files)
    yield World("demo", _sets("demo", "demo-hard"))
    server.create("team", "handbook", handbook())
    yield World("handbook", _sets("handbook", "handbook-followup"))
    server.create("team", "versions", repository.content(2_100))
    hard = version_questions(names_number=False)
    yield World("versions", {"versions": version_questions(names_number=True), "versions-hard": hard})
    if BUNDLE.exists():
        server.create("team", "vue", from_bundle=BUNDLE)
        yield World("vue", _sets("vue-zh", "vue-zh-hard", "vue-zh-followup"))


def _sets(*names: str) -> dict[str, list[Question]]:
    return {name: questions(name) for name in names}


def handbook() -> dict[str, bytes]:
    """A company's handbook as a repository; ``questions/handbook.md`` holds all its pages."""
    files: dict[str, bytes] = {}
    entries = []
    for part in (QUESTIONS / "handbook.md").read_text(encoding="utf-8").split("=== ")[1:]:
        head, _, body = part.partition("\n")
        path, title, keywords = head.split(" | ")
        entry = {"path": path, "title": title, "type": "resource", "keywords": keywords.split(",")}
        entries.append(entry)
        files[path] = f'---\ntitle: "{title}"\ntype: resource\n---\n\n# {title}\n\n{body}'.encode()
    entries.sort(key=lambda entry: str(entry["path"]))
    files["catalog.json"] = json.dumps({"version": 1, "pages": entries}, ensure_ascii=False, indent=1).encode()
    return files


# ---------------------------------------------------------------- the plain way


def by_counting(catalog: Sequence[Mapping[str, object]], question: str, limit: int) -> list[str]:
    """Pages by how often pieces of the question (words, two Chinese characters) stand in their metadata."""
    pieces = {
        piece
        for run in _PIECE.findall(question.lower())
        for piece in ([run] if run.isascii() else {run[at : at + 2] for at in range(max(len(run) - 1, 1))})
    }
    scores = {}
    for page in catalog:
        text = json.dumps([page.get(name) for name in ("path", "title", "type", "keywords")], ensure_ascii=False)
        if score := sum(text.lower().count(piece) for piece in pieces):
            scores[str(page["path"])] = score
    return sorted(scores, key=lambda path: (-scores[path], path))[:limit]
