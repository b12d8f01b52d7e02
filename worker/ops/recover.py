"""``kbw recover``: bring back what Redis lost and wake what stands still; must not run a stage itself."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from worker.bootstrap import workshop
from worker.ops.desk import FREED_AT_ONCE, open_desk
from worker.settings import Settings
from worker.upkeep import recover


def recover_jobs(settings: Settings, *, dry_run: bool, as_json: bool) -> int:
    """Says what was put back, and how many jobs were woken."""
    shop = workshop(settings)
    desk = open_desk(shop)
    found = recover(shop.upkeep(desk.actor), dry_run=dry_run)
    woken = [] if dry_run else desk.records.sweep.stalled(FREED_AT_ONCE)
    desk.wake_all(woken)
    if as_json:
        document = {"recovered": [asdict(told) for told in found if told.state], "woken": len(woken)}
        document["unreadable"] = [told.task_id for told in found if not told.state]
        click.echo(json.dumps(document, ensure_ascii=False, indent=2))
        return 0
    for told in found:
        where = f"{told.state} at {told.stage}" if told.state else "not put back: its folder holds no readable payload"
        click.echo(f"{told.task_id}: {where}")
    done = "would be put back" if dry_run else "put back"
    click.echo(f"{sum(bool(told.state) for told in found)} jobs {done}, {len(woken)} woken")
    return 0
