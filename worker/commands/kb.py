"""The knowledge base's commands of ``kbw``: argument parsing only; what they do is in ``worker.ops``."""

from __future__ import annotations

import sys

import click

from worker.commands.shared import AS_JSON, settings_with_logging, told


@click.command()
@click.argument("text")
@click.option("--limit", type=click.IntRange(1, 1_000), default=10, show_default=True, help="At most so many pages.")
@AS_JSON
@told
def search(text: str, limit: int, *, as_json: bool) -> None:
    """Show which pages the index finds for a question, and why."""
    from worker.ops.search import search as look

    sys.exit(look(settings_with_logging("WARNING"), text, limit, as_json=as_json))


@click.group()
def kb() -> None:
    """Check and mend the knowledge base."""


@kb.command()
@AS_JSON
@told
def check(*, as_json: bool) -> None:
    """Compare catalog, index and pages; exit 1 when something is wrong."""
    from worker.ops.kb import check_kb

    sys.exit(check_kb(settings_with_logging("WARNING"), as_json=as_json))


@kb.command()
@click.option("--dry-run", is_flag=True, help="Say what would be mended, change nothing.")
@AS_JSON
@told
def repair(*, dry_run: bool, as_json: bool) -> None:
    """Mend catalog and index in one commit.

    Lost entries, dead ones, doubles. Pages are never changed.
    """
    from worker.ops.kb import repair_kb

    sys.exit(repair_kb(settings_with_logging("WARNING"), dry_run=dry_run, as_json=as_json))


@kb.command()
@AS_JSON
@told
def stale(*, as_json: bool) -> None:
    """List QA pages whose evidence changed since.

    Since they were written; exit 1 when there are any.
    """
    from worker.ops.kb import stale_pages

    sys.exit(stale_pages(settings_with_logging("WARNING"), as_json=as_json))


KB_COMMANDS = (search, kb)
