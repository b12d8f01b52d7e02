"""``kbw faq plan | dry-run | import | resume | verify | export``: FAQ batches into WeKnora; must not print a key.

A plan is a file; its journal lies beside it. Whatever is said is also in ``out/*.txt``.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

import click

from tasks.contract import strict_json
from tasks.knowledge.faq import (
    MAX_BATCH,
    Asked,
    Batch,
    FaqCard,
    Mode,
    batches_of,
    not_there,
    presence,
    problems_with,
    verification,
)
from tasks.knowledge.faq_files import CardFileError, read_cards
from worker.adapters.weknora.rest import Base, WeknoraRest
from worker.adapters.weknora.results import WeknoraFault
from worker.bootstrap import Workshop
from worker.ops.failure import OperationFailedError
from worker.ops.faq_import import EXPORT_S, REQUEST_S, FaqImport, ImportJournal, base_lock
from worker.paths import write_atomic
from worker.settings import Settings

T = TypeVar("T")

PLAN_SCHEMA = "kbw/faq-plan@1"
DEADLINE_S = 7_200.0
_PRESENCE = {
    "missing": "missing",
    "twice": "twice",
    "changed": "with other answers",
    "partly": "without some of their questions",
}
FINAL_QUESTIONS = 15
"""Seed 000 §0.1: a batch of five videos is verified with 15 questions; ``--questions 0`` asks for every card."""


@dataclass(frozen=True)
class Plan:
    """A plan file, read."""

    path: Path
    kb: str
    mode: Mode
    batches: tuple[Batch, ...]

    @property
    def entries(self) -> list[Any]:
        """All entries, in order."""
        return [entry for batch in self.batches for entry in batch.entries]

    @property
    def journal(self) -> ImportJournal:
        """What was begun and done of this plan."""
        return ImportJournal(self.path.with_suffix(".journal.jsonl"))


class Desk:
    """What all commands need: the server, the base, and a log that people can read afterwards."""

    def __init__(self, settings: Settings, out: Path, *, command: str) -> None:
        self.shop = Workshop(settings, Path.cwd())
        self.settings = settings
        self.out = out
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(self.shop.clock.now()))
        self.stamp = stamp
        self._log = out / f"faq-{command}-{stamp}.txt"

    @cached_property
    def rest(self) -> WeknoraRest:
        """WeKnora with the key that may ingest."""
        return self.shop.weknora_rest(ingest=True)

    def say(self, line: str, *, quiet: bool = False) -> None:
        """A line for the operator and for the log, without any secret."""
        masked = self.shop.mask.text(line)
        self.out.mkdir(parents=True, exist_ok=True)
        with self._log.open("a", encoding="utf-8") as log:
            log.write(f"{time.strftime('%H:%M:%SZ', time.gmtime(self.shop.clock.now()))} {masked}\n")
        if not quiet:
            click.echo(masked, err=True)

    def base(self, name: str) -> Base:
        """The base of that name, which must be of type faq."""
        base = told(lambda: self.rest.base(name, timeout=REQUEST_S))
        if base.kind not in ("", "faq"):
            raise OperationFailedError(f"knowledge base {name!r} is of type {base.kind}, not faq")
        return base

    def export(self, base: Base) -> list[Any]:
        """All entries of the base."""
        return told(lambda: self.rest.export(base, timeout=EXPORT_S))


@contextmanager
def at_desk(settings: Settings, out: Path, command: str) -> Iterator[Desk]:
    """A desk whose log tells, too, why the command failed."""
    desk = Desk(settings, out, command=command)
    try:
        yield desk
    except OperationFailedError as error:
        desk.say(f"FAILED  {error}", quiet=True)
        raise


def told(work: Callable[[], T]) -> T:
    """WeKnora's faults as one line."""
    try:
        return work()
    except WeknoraFault as fault:
        raise OperationFailedError(f"WeKnora: {fault.status}: {fault.detail}") from None


# ---------------------------------------------------------------- plan


def plan(
    files: Sequence[Path], output: Path, settings: Settings, *, kb: str, mode: Mode, size: int, out: Path, offline: bool
) -> int:
    """Read and check cards, write the plan; nothing is written when a check fails."""
    compares = not offline and mode != "replace"
    if compares and not settings.material.url:
        raise OperationFailedError(
            "KBW_WEKNORA_URL is not set: set it to WeKnora's REST base URL (ends in /api/v1), "
            "or plan with --offline, without a look at what the base has"
        )
    with at_desk(settings, out, "plan") as desk:
        return _planned(desk, files, output, kb or settings.material.kb_id, mode, size, compares=compares)


def _planned(desk: Desk, files: Sequence[Path], output: Path, kb: str, mode: Mode, size: int, *, compares: bool) -> int:
    cards = read_files(files)
    existing = desk.export(desk.base(kb)) if compares else []
    problems = problems_with(cards, existing)
    for problem in problems:
        desk.say(f"{'ERROR' if problem.fatal else 'note'}  {problem.place}: {problem.text}")
    if any(problem.fatal for problem in problems) or not cards:
        raise OperationFailedError(f"{sum(p.fatal for p in problems)} problems in {len(cards)} cards; no plan written")
    entries = not_there([card.entry() for card in cards], existing)
    batches = batches_of(entries, kb, mode, size)
    document = {"schema": PLAN_SCHEMA, "kb": kb, "mode": mode, "batches": [asdict(batch) for batch in batches]}
    write_atomic(output, strict_json.dumps(document))
    left_out = len(cards) - len(entries)
    desk.say(f"{len(entries)} cards in {len(batches)} imports for {kb!r} ({mode}), {left_out} already there: {output}")
    return 0


def read_files(files: Sequence[Path]) -> list[FaqCard]:
    """All cards. Raises :class:`OperationFailedError` that names file and place."""
    cards: list[FaqCard] = []
    for path in files:
        try:
            cards += read_cards(path.name, path.read_text("utf-8"))
        except (OSError, UnicodeDecodeError, CardFileError) as error:
            raise OperationFailedError(f"{path}: {error}") from error
    return cards


def read_plan(path: Path) -> Plan:
    """A plan file. Raises :class:`OperationFailedError`."""
    try:
        document = strict_json.loads(path.read_bytes())
        if document["schema"] != PLAN_SCHEMA or document["mode"] not in ("append", "replace"):
            raise ValueError(f"its schema is not {PLAN_SCHEMA}")
        rows = document["batches"]
        batches = tuple(Batch(row["number"], row["task_id"], tuple(row["entries"])) for row in rows)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise OperationFailedError(f"{path} is no plan of `kbw faq plan`: {error}") from error
    return Plan(path, document["kb"], document["mode"], batches)


# ---------------------------------------------------------------- dry-run, import, resume


def dry_run(path: Path, settings: Settings, *, out: Path, deadline_s: float) -> int:
    """Let the server check every batch without storing it."""
    with at_desk(settings, out, "dry-run") as desk:
        found = read_plan(path)
        base = desk.base(found.kb)
        with base_lock(desk.shop.state_dir, base.id):
            if found.mode == "replace":
                _back_up(desk, found, base)  # a server that knows no dry_run would empty the base
            with progress_of(found) as moved:
                refused = told(lambda: _import(desk, found, base, deadline_s, moved).dry_run(found.batches, found.mode))
        for line in refused:
            desk.say(f"REFUSED  {line}")
        desk.say(f"dry run of {len(found.entries)} cards: {len(refused)} refused")
        return 1 if refused else 0


def run_import(path: Path, settings: Settings, *, out: Path, deadline_s: float, replace: str, resume: bool) -> int:
    """Import the plan, or go on with it; afterwards the base is compared with the plan card by card."""
    with at_desk(settings, out, "resume" if resume else "import") as desk:
        return _imported(desk, read_plan(path), deadline_s, replace=replace, resume=resume)


def _imported(desk: Desk, found: Plan, deadline_s: float, *, replace: str, resume: bool) -> int:
    path = found.path
    begun = any(found.journal.begun(batch) for batch in found.batches)
    if begun and not resume:
        raise OperationFailedError(f"{path} was begun before: `kbw faq resume {path}` goes on with it")
    if found.mode == "replace" and replace != found.kb:
        raise OperationFailedError(f"this plan empties the base first: type its name, --replace {found.kb!r}")
    base = desk.base(found.kb)
    with base_lock(desk.shop.state_dir, base.id):
        if found.mode == "replace" and not begun:
            found.journal.note("backup", file=str(_back_up(desk, found, base)))
        with progress_of(found) as moved:
            told(lambda: _import(desk, found, base, deadline_s, moved).run(found.batches, found.mode))
        state = presence(found.entries, desk.export(base))
    desk.say(f"{len(found.entries)} cards: {_counted(asdict(state))}")
    if state.complete:
        found.journal.note("complete", cards=len(found.entries))
    return 0 if state.complete else 1


def _import(desk: Desk, found: Plan, base: Base, deadline_s: float, moved: Callable[[int], None]) -> FaqImport:
    return FaqImport(
        rest=desk.rest,
        base=base,
        journal=found.journal,
        clock=desk.shop.clock,
        deadline_s=deadline_s,
        say=lambda line: desk.say(line, quiet=True),
        tell=desk.say,
        moved=moved,
    )


@contextmanager
def progress_of(found: Plan) -> Iterator[Callable[[int], None]]:
    """A bar over all cards on a terminal, nothing elsewhere."""
    with click.progressbar(length=len(found.entries), label="cards", file=sys.stderr) as bar:
        yield bar.update


# ---------------------------------------------------------------- verify, export


def verify(path: Path, settings: Settings, *, golden: Path | None, questions: int, out: Path, as_json: bool) -> int:
    """Compare the base with the plan, then ask: cards' own questions, and a golden set if there is one."""
    with at_desk(settings, out, "verify") as desk:
        return _verified(desk, read_plan(path), golden=golden, questions=questions, as_json=as_json)


def _verified(desk: Desk, found: Plan, *, golden: Path | None, questions: int, as_json: bool) -> int:
    base = desk.base(found.kb)
    state = presence(found.entries, desk.export(base))
    own = [(entry["standard_question"], entry["standard_question"]) for entry in spread(found.entries, questions)]
    report = {
        "kb": found.kb,
        "cards": len(found.entries),
        "presence": asdict(state),
        "own": asdict(verification(_ask(desk, base, own))),
    }
    if golden:
        report["golden"] = asdict(verification(_ask(desk, base, read_golden(golden))))
    name = desk.out / f"faq-verify-{_safe(found.kb)}-{desk.stamp}.json"
    write_atomic(name, strict_json.dumps(report))
    if as_json:
        click.echo(json.dumps(report, ensure_ascii=False, indent=2))
    for line in _table(report):
        desk.say(line)
    return 0 if state.complete else 1


def spread(entries: Sequence[Any], questions: int) -> list[Any]:
    """``questions`` entries spread evenly over all of them; 0: every one."""
    if questions <= 0 or questions >= len(entries):
        return list(entries)
    return [entries[at * len(entries) // questions] for at in range(questions)]


def _ask(desk: Desk, base: Base, pairs: Sequence[tuple[str, str]]) -> list[Asked]:
    asked = []
    count, threshold = max(desk.settings.material.match_count, 3), desk.settings.material.vector_threshold  # for hit@3
    rest = desk.rest
    for question, expected in pairs:
        search = partial(rest.faq_search, base, question, match_count=count, threshold=threshold, timeout=REQUEST_S)
        rows = told(search)
        names = tuple(str(row.get("standard_question")) for row in rows)
        asked.append(Asked(question, expected, names, tuple(float(row.get("score") or 0) for row in rows)))
    return asked


def read_golden(path: Path) -> list[tuple[str, str]]:
    """``{question, expected}`` a JSON line; ``expected`` is a standard question."""
    try:
        rows = [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]
        return [(str(row["question"]), str(row["expected"])) for row in rows]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise OperationFailedError(f"{path}: needs lines of {{question, expected}}: {error}") from error


def _table(report: dict[str, Any]) -> list[str]:
    lines = [
        f"{report['cards']} cards in {report['kb']!r}: {_counted(report['presence'])}",
        f"{'questions':<10}{'asked':>7}{'hit@1':>8}{'hit@3':>8}{'zero':>8}  magnets",
    ]
    for name in ("own", "golden"):
        if one := report.get(name):
            magnets = ", ".join(f"{question[:20]} ×{count}" for question, count in one["magnets"][:3]) or "-"
            shares = "".join(f"{one[key]:>8.0%}" for key in ("hit_at_1", "hit_at_3", "zero_hits"))
            lines.append(f"{name:<10}{one['asked']:>7}{shares}  {magnets}")
    return lines


def _counted(state: Mapping[str, Sequence[str]]) -> str:
    return ", ".join(f"{len(state[name])} {words}" for name, words in _PRESENCE.items())


def export(settings: Settings, *, kb: str, output: Path, out: Path) -> int:
    """All entries of a base as JSON, which an import takes again."""
    with at_desk(settings, out, "export") as desk:
        _write_export(desk, desk.base(kb or settings.material.kb_id), output)
    return 0


def _back_up(desk: Desk, found: Plan, base: Base) -> Path:
    return _write_export(desk, base, desk.out / f"faq-backup-{_safe(found.kb)}-{desk.stamp}.json")


def _write_export(desk: Desk, base: Base, target: Path) -> Path:
    entries = desk.export(base)
    target.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(target, strict_json.dumps(entries))
    desk.say(f"{len(entries)} entries of {base.name!r} in {target}")
    return target


def _safe(name: str) -> str:
    return re.sub(r"[^\w-]+", "_", name)[:60]


__all__ = ["DEADLINE_S", "FINAL_QUESTIONS", "MAX_BATCH", "dry_run", "export", "plan", "run_import", "verify"]
