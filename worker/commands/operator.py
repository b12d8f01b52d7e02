"""The operators' commands of ``kbw``: argument parsing only; what they do is in ``worker.ops``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import click

from worker.commands.shared import AS_JSON, duration, settings_with_logging, told

IDS = click.argument("task_ids", metavar="[ID]...", nargs=-1)
DRY_RUN = click.option("--dry-run", is_flag=True, help="Say what would be done, change nothing.")
YES = click.option("--yes", is_flag=True, help="Do it for more than 20 jobs.")
ALL = click.option("--all", "everything", is_flag=True, help="All that the filter leaves.")


def filtered(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that choose jobs which are over."""
    for option in (
        click.option("--limit", type=click.IntRange(1), default=10_000, help="At most so many jobs, oldest first."),
        click.option("--older", type=duration, default="0s", help="Ended longer ago than this: 90s, 15m, 1h, 30d."),
        click.option("--stage", default="", help="Failed at this stage."),
        click.option("--code", default="", help="With this error code."),
    ):
        command = option(command)
    return command


def named_or_filtered(command: Callable[..., Any]) -> Callable[..., Any]:
    """Dead letters by ID, by a filter, or all, with care for many."""
    for option in (YES, DRY_RUN, filtered, ALL, IDS):
        command = option(command)
    return command


# ---------------------------------------------------------------- jobs


@click.command()
@click.argument("task_ids", metavar="ID...", nargs=-1, required=True)
@AS_JSON
@told
def cancel(task_ids: tuple[str, ...], *, as_json: bool) -> None:
    """Cancel jobs: each ends with the error result CANCELLED.

    Too late once its commit, or the delivery of its result, has begun.
    """
    from worker.ops.control import cancel_jobs

    sys.exit(cancel_jobs(settings_with_logging("WARNING"), task_ids, as_json=as_json))


@click.command()
@IDS
@click.option("--state", type=click.Choice(["done", "failed", "cancelled"]), help="Jobs of this state.")
@filtered
@click.option("--from-stage", default="", help="Where to begin; default: the stage that failed, else prepare.")
@click.option("--deadline-seconds", type=click.FloatRange(10, 86_400), default=None, help="Time for the new attempt.")
@click.option("--publish-again", is_flag=True, help="Let a new answer replace a result that was a success.")
@DRY_RUN
@YES
@AS_JSON
@told
def replay(task_ids: tuple[str, ...], *, as_json: bool, **options: Any) -> None:
    """Run jobs that are over once more, by ID or by filter.

    All failed ones: --state failed.

    A replay is a new generation of the same task: what it replaces moves to attempts/<generation>/. The error result of
    a failed job is replaced by the new one; a success keeps its published result unless --publish-again is given. No
    replay ever commits a task's page a second time.
    """
    from worker.ops.replay import ReplayOrder, replay_jobs

    if bool(task_ids) == any(options[name] for name in ("state", "code", "stage", "older")):
        raise click.UsageError("name either jobs by ID, or a filter (--state, --code, --stage, --older)")
    order = ReplayOrder(
        from_stage=options["from_stage"],
        deadline_s=options["deadline_seconds"] or 0.0,
        publish_again=options["publish_again"],
        dry_run=options["dry_run"],
    )
    choice = {name: options[name] for name in ("state", "code", "stage", "older", "limit")}
    settings = settings_with_logging("WARNING")
    sys.exit(replay_jobs(settings, task_ids, choice, order, yes=options["yes"], as_json=as_json))


# ---------------------------------------------------------------- dead letters


@click.group()
def dlq() -> None:
    """Dead letters: failed jobs, and entries that became none."""


@dlq.command("list")
@filtered
@AS_JSON
@told
def dlq_list(*, as_json: bool, **choice: Any) -> None:
    """List them, oldest first."""
    from worker.ops.dead import list_dead

    sys.exit(list_dead(settings_with_logging("WARNING"), choice, as_json=as_json))


@dlq.command("show")
@click.argument("name", metavar="ID")
@AS_JSON
@told
def dlq_show(name: str, *, as_json: bool) -> None:
    """Show one: a task's ID, or an entry's (like 1767225600000-0)."""
    from worker.ops.dead import show_dead

    sys.exit(show_dead(settings_with_logging("WARNING"), name, as_json=as_json))


@dlq.command("replay")
@named_or_filtered
@AS_JSON
@told
def dlq_replay(task_ids: tuple[str, ...], *, as_json: bool, **options: Any) -> None:
    """Replay jobs, re-submit stream entries."""
    from worker.ops.dead import replay_dead

    sys.exit(replay_dead(settings_with_logging("WARNING"), _named(task_ids, options), options, as_json=as_json))


@dlq.command("drop")
@named_or_filtered
@AS_JSON
@told
def dlq_drop(task_ids: tuple[str, ...], *, as_json: bool, **options: Any) -> None:
    """Take them off the list; a job's record, folder and result stay."""
    from worker.ops.dead import drop_dead

    sys.exit(drop_dead(settings_with_logging("WARNING"), _named(task_ids, options), options, as_json=as_json))


def _named(task_ids: tuple[str, ...], options: dict[str, Any]) -> tuple[str, ...]:
    if bool(task_ids) == any(options[name] for name in ("everything", "code", "stage", "older")):
        raise click.UsageError("name either dead letters by ID, or a filter (--code, --stage, --older), or --all")
    return task_ids


# ---------------------------------------------------------------- gates


def gated(command: Callable[..., Any]) -> Callable[..., Any]:
    """The two kinds of gate."""
    command = click.option("--endpoint", default="", help="A model endpoint's base URL, as `kbw metrics` names it.")(
        command
    )
    return click.option("--queue", default="", help="kbw.io, kbw.llm or kbw.commit.")(command)


@click.command()
@gated
@AS_JSON
@told
def pause(queue: str, endpoint: str, *, as_json: bool) -> None:
    """Hold back a queue or a model endpoint until `kbw resume`.

    What runs already goes on.
    """
    from worker.ops.control import close_gate

    sys.exit(close_gate(settings_with_logging("WARNING"), queue, endpoint, as_json=as_json))


@click.command()
@gated
@AS_JSON
@told
def resume(queue: str, endpoint: str, *, as_json: bool) -> None:
    """Open a paused queue or endpoint; wake what waits there."""
    from worker.ops.control import open_gate

    sys.exit(open_gate(settings_with_logging("WARNING"), queue, endpoint, as_json=as_json))


# ---------------------------------------------------------------- the record as a whole


@click.command()
@DRY_RUN
@AS_JSON
@told
def recover(*, dry_run: bool, as_json: bool) -> None:
    """Put back jobs that Redis lost, out of their folders.

    And wake everything that stands still.
    """
    from worker.ops.recover import recover_jobs

    sys.exit(recover_jobs(settings_with_logging("WARNING"), dry_run=dry_run, as_json=as_json))


@click.command()
@click.option("--older-than", type=duration, default=None, help="Default: KBW_RETENTION_DAYS.")
@DRY_RUN
@AS_JSON
@told
def prune(older_than: float | None, *, dry_run: bool, as_json: bool) -> None:
    """Forget jobs that ended long ago.

    Records, folders, reports, stream entries. A late repeat is still known for a year.
    """
    from worker.ops.prune import prune_jobs

    sys.exit(prune_jobs(settings_with_logging("WARNING"), older_than, dry_run=dry_run, as_json=as_json))


@click.command()
@AS_JSON
@told
def metrics(*, as_json: bool) -> None:
    """Print the figures of the whole fleet for Prometheus."""
    from worker.ops.figures import print_metrics

    sys.exit(print_metrics(settings_with_logging("WARNING"), as_json=as_json))


@click.command()
@click.argument("question", type=click.Choice(["live", "ready"]))
@click.option(
    "--class", "kind", type=click.Choice(["io", "llm", "commit"]), help="live: by this class of workers only."
)
@AS_JSON
@told
def health(question: str, *, kind: str | None, as_json: bool) -> None:
    """Exit 0 when work is consumed (live), or could be (ready).

    Else exit 1, and the reason.
    """
    from worker.ops.figures import print_health

    if kind and question != "live":
        raise click.UsageError("--class goes with live")
    sys.exit(print_health(settings_with_logging("ERROR"), question, kind or "", as_json=as_json))


OPERATOR_COMMANDS = (cancel, replay, dlq, pause, resume, recover, prune, metrics, health)
