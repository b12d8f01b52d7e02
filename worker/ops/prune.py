"""``kbw prune``: forget what ended long ago; a late repeat of it is still known."""

from __future__ import annotations

import json

import click

from worker.bootstrap import workshop
from worker.ops.choosing import SCANNED, Choice, chosen
from worker.ops.desk import open_desk
from worker.settings import Settings
from worker.upkeep import Pruned, prune

OVER = ("done", "failed", "cancelled")
DAY_S = 86_400


def prune_jobs(settings: Settings, older_than: float | None, *, dry_run: bool, as_json: bool) -> int:
    """``older_than`` in seconds; ``None``: ``KBW_RETENTION_DAYS``."""
    shop = workshop(settings)
    desk = open_desk(shop)
    age = settings.job.retention_days * DAY_S if older_than is None else older_than
    if dry_run:
        found = chosen(desk.records.views, Choice(OVER, older_s=age, limit=SCANNED), desk.now(), oldest_first=True)
        pruned = Pruned(tuple(record.task_id for record in found))
    else:
        pruned = prune(shop.upkeep(desk.actor), age)
    if as_json:
        facts = {"jobs": list(pruned.jobs), "folders": pruned.folders, "reports": pruned.reports}
        click.echo(json.dumps({**facts, "entries": pruned.entries, "dryRun": dry_run}, ensure_ascii=False, indent=2))
    elif dry_run:
        click.echo("\n".join((*pruned.jobs, f"{len(pruned.jobs)} jobs would be forgotten")))
    else:
        click.echo(
            f"{len(pruned.jobs)} jobs forgotten, {pruned.folders} folders, {pruned.reports} reports and "
            f"{pruned.entries} stream entries removed"
        )
    return 0
