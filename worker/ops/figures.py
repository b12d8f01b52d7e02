"""``kbw metrics`` and ``kbw health``: the figures of the fleet, for people, Prometheus and health checks."""

from __future__ import annotations

import json

import click

from worker.bootstrap_record import RecordShop, shared_dir_of
from worker.health import of_class
from worker.metrics import as_document, render
from worker.settings import Settings


def print_metrics(settings: Settings, *, as_json: bool) -> int:
    """Text for Prometheus, or JSON."""
    metrics = RecordShop(settings, shared_dir_of(settings)).gauges.metrics()
    click.echo(
        json.dumps(as_document(metrics), ensure_ascii=False, indent=2) if as_json else render(metrics), nl=as_json
    )
    return 0


def print_health(settings: Settings, question: str, kind: str, *, as_json: bool) -> int:
    """Exit code 0: yes. ``kind``: ask for this class of workers only, all when empty."""
    gauges = RecordShop(settings, shared_dir_of(settings)).gauges
    fine, facts = gauges.live() if question == "live" else gauges.ready()
    if kind:
        fine, facts = of_class((fine, facts), kind)
    if as_json:
        click.echo(json.dumps(facts, ensure_ascii=False, indent=2))
    else:
        click.echo(f"{question}: yes" if fine else f"{question}: no: {facts['reason']}")
    return 0 if fine else 1
