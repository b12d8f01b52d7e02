"""``kbw knowledge``: argument parsing only; the work is in ``worker.ops.knowledge``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from worker.commands.shared import AS_JSON, settings_with_logging, told

FILE = click.Path(path_type=Path, dir_okay=False)


@click.group()
def knowledge() -> None:
    """Sources of knowledge beside the team's own: check and ask.

    Check their file, ask them, choose their threshold.
    """


@knowledge.command()
@click.argument("file", type=FILE, required=False)
@AS_JSON
@told
def validate(file: Path | None, *, as_json: bool) -> None:
    """Check knowledge.yaml (or FILE) and pipelines.yaml.

    Sources and mounts; exit 1 when something is an error.
    """
    from worker.ops.knowledge import validate as check

    sys.exit(check(settings_with_logging("ERROR"), file, as_json=as_json))


@knowledge.command()
@click.argument("ids", metavar="[ID]...", nargs=-1)
@AS_JSON
@told
def probe(ids: tuple[str, ...], *, as_json: bool) -> None:
    """Ask every source one question and tell its status.

    Exit 1 when one does not answer.
    """
    from worker.ops.knowledge import probe as ask

    sys.exit(ask(settings_with_logging("ERROR"), ids, as_json=as_json))


@knowledge.command()
@click.argument("source_id", metavar="ID")
@click.argument("text")
@AS_JSON
@told
def search(source_id: str, text: str, *, as_json: bool) -> None:
    """What the source ID finds for TEXT.

    And how much of it would stand in a prompt.
    """
    from worker.ops.knowledge import search as find

    sys.exit(find(settings_with_logging("ERROR"), source_id, text, as_json=as_json))


@knowledge.command()
@click.argument("source_id", metavar="ID")
@click.option("--questions", type=FILE, required=True, help="YAML, JSON or JSONL: [{question, expected}].")
@AS_JSON
@told
def calibrate(source_id: str, questions: Path, *, as_json: bool) -> None:
    """Measure scores on sample questions; propose a threshold.

    Scores of right and wrong hits, and a threshold that separates them.
    """
    from worker.ops.knowledge import calibrate as measure

    sys.exit(measure(settings_with_logging("ERROR"), source_id, questions, as_json=as_json))
