"""The ``kbw`` command: argument parsing only; the work is in ``worker.ops``, which is imported when it is needed.

Exit codes: 0 success, 1 failed operation, 2 wrong usage. Errors go to standard error, without a traceback.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from worker import __version__
from worker.commands.kb import KB_COMMANDS
from worker.commands.knowledge import knowledge
from worker.commands.material import MATERIAL_COMMANDS
from worker.commands.operator import OPERATOR_COMMANDS
from worker.commands.shared import AS_JSON, STATES, duration, fail, settings_with_logging, told

if TYPE_CHECKING:
    from worker.ops.local import Answered

EXISTING_FILE = click.Path(path_type=Path, dir_okay=False)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(version=__version__, prog_name="kbw")
def main() -> None:
    """The worker behind a team's questions: grounded answers out of a Gitea knowledge base."""


# ---------------------------------------------------------------- a whole system


@main.command()
@click.option("--keep", is_flag=True, help="Leave the demo's folder, server and workers running until Ctrl-C.")
@told
def demo(*, keep: bool) -> None:
    """See a whole run on this machine: three questions, a commit.

    Own Git server, embedded Valkey, real workers, in a new folder below the temporary one. Your model answers if one is
    configured, else replies written by hand.
    """
    from worker.demo.run import run_demo

    sys.exit(run_demo(keep=keep))


@main.command()
@told
def up() -> None:
    """Run intake and all workers; Ctrl-C or SIGTERM stops them.

    With an embedded Valkey unless KBW_REDIS_URL is set. Running stages may take KBW_SHUTDOWN_S longer.
    """
    from worker.ops.system import up as start

    sys.exit(start(settings_with_logging()))


@main.command()
@click.option(
    "--class", "kind", type=click.Choice(["io", "llm", "commit"]), required=True, help="Which queue to serve."
)
@click.option("--concurrency", type=click.IntRange(1), help="Processes (threads for llm); default from the settings.")
@told
def worker(kind: str, concurrency: int | None) -> None:
    """Run one class of workers, on any number of hosts."""
    from worker.ops.system import serve_worker

    sys.exit(serve_worker(settings_with_logging(), kind, concurrency))  # type: ignore[arg-type]  # click checked it


@main.command()
@told
def intake() -> None:
    """Serve the ways in: files, stream and, with a token, HTTP.

    Part of `up`; any number may run beside it.
    """
    from worker.ops.system import serve_intake

    sys.exit(serve_intake(settings_with_logging()))


# ---------------------------------------------------------------- jobs


@main.command()
@click.argument("file", type=EXISTING_FILE)
@click.option("--wait", is_flag=True, help="Wait for the result; exit 1 when it is no success.")
@AS_JSON
@told
def submit(file: Path, *, wait: bool, as_json: bool) -> None:
    """Hand a payload file to the running system.

    With --wait the answer is printed (--json: the whole result).
    """
    from worker.ops.submit import submit as hand_over

    sys.exit(hand_over(file, settings_with_logging("WARNING"), wait=wait, as_json=as_json))


@main.command()
@click.argument("payload", type=EXISTING_FILE)
@told
def run(payload: Path) -> None:
    """Run one payload here and now, without Redis or workers.

    Each stage is told on standard error as it goes. A job that `run` began and that failed is run again from the stage
    that failed. The last line on standard output is
    {"success": …, "resultFile": "…"}; why a job failed is on standard error.
    """
    from worker.ops import local

    say_result(lambda: local.run(payload, settings_with_logging("INFO")))


@main.command()
@click.option("--input", "payload", type=EXISTING_FILE, required=True, help="The payload.")
@click.option("--context-output", type=EXISTING_FILE, required=True, help="Where context.json goes.")
@told
def prepare(payload: Path, context_output: Path) -> None:
    """Step 1 by hand: write the context to choose pages from."""
    from worker.ops import local

    context = local.prepare(payload, context_output, settings_with_logging("WARNING"))
    say(
        taskId=context.task_id,
        commit=context.kb.commit,
        catalogPageCount=context.kb.catalog_page_count,
        starterPageCards=[card.path for card in context.kb.starter_page_cards],
        attachments=[{"fileName": a.file_name, "previewStatus": a.preview_status} for a in context.attachments],
        warnings=len(context.warnings),
        contextOutput=str(context_output),
    )


@main.command()
@click.option("--input", "payload", type=EXISTING_FILE, required=True, help="The payload.")
@click.option("--context", type=EXISTING_FILE, required=True, help="context.json of prepare.")
@click.option("--selection", type=EXISTING_FILE, required=True, help="page-selection.json of the model or agent.")
@click.option("--evidence-output", type=EXISTING_FILE, required=True, help="Where evidence.json goes.")
@told
def fetch(payload: Path, context: Path, selection: Path, evidence_output: Path) -> None:
    """Step 2 by hand: read the selected pages into a file.

    `kbw schema selection` tells the form of the selection.
    """
    from worker.ops import local

    evidence = local.fetch(payload, context, selection, evidence_output, settings_with_logging("WARNING"))
    say(
        taskId=evidence.task_id,
        commit=evidence.commit,
        evidencePages=[{"path": page.path, "truncated": page.truncated} for page in evidence.evidence_pages],
        missingPages=[missing.document() for missing in evidence.missing_pages],
        evidenceOutput=str(evidence_output),
    )


@main.command()
@click.option("--input", "payload", type=EXISTING_FILE, required=True, help="The payload.")
@click.option("--context", type=EXISTING_FILE, required=True, help="context.json of prepare.")
@click.option("--evidence", type=EXISTING_FILE, required=True, help="evidence.json of fetch.")
@click.option("--answer", type=EXISTING_FILE, required=True, help="answer.json of the model or agent.")
@click.option("--result-output", type=EXISTING_FILE, help="Where the result goes; default: the payload's resultFile.")
@told
def apply(payload: Path, context: Path, evidence: Path, answer: Path, result_output: Path | None) -> None:
    """Step 3 by hand: check an answer, commit its page, publish.

    `kbw schema answer` tells the form of the answer.
    """
    from worker.ops import local

    settings = settings_with_logging("WARNING")
    say_result(lambda: local.apply(payload, context, evidence, answer, result_output, settings))


# ---------------------------------------------------------------- looking


@main.command("list")
@click.option("--state", type=click.Choice(STATES), help="One state.")
@click.option("--stage", default="", help="Jobs that stand at this stage, or failed there.")
@click.option("--code", default="", help="Jobs with this error code.")
@click.option("--older", type=duration, default="0s", help="Ended (or, while open, came in) longer ago: 15m, 1h, 30d.")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="At most so many jobs.")
@AS_JSON
@told
def list_jobs(state: str | None, stage: str, code: str, older: float, limit: int, *, as_json: bool) -> None:
    """List jobs by state, newest first."""
    from worker.ops.choosing import Choice
    from worker.ops.inspect import list_jobs as show_list

    choice = Choice((state,) if state else STATES, stage, code, older, limit)
    show_list(settings_with_logging("WARNING"), choice, as_json=as_json)


@main.command()
@click.argument("task_id", metavar="ID")
@AS_JSON
@told
def show(task_id: str, *, as_json: bool) -> None:
    """Show where a job stands, how it got there, what to do.

    Stages, attempts, pages, model calls, commit, error; from its folder when the record is gone.
    """
    from worker.ops.inspect import show_job

    sys.exit(show_job(settings_with_logging("WARNING"), task_id, as_json=as_json))


@main.command()
@click.option("--settings", "settings_only", is_flag=True, help="List all settings with value, origin and meaning.")
@AS_JSON
@told
def doctor(*, settings_only: bool, as_json: bool) -> None:
    """Check the installation; say how to mend what is wrong.

    Git, knowledge base, shared directory, Redis, model. Exit code 1 when something is wrong.
    """
    from worker.ops.doctor import examine, print_settings

    settings = settings_with_logging("ERROR")
    sys.exit(print_settings(settings, as_json=as_json) if settings_only else examine(settings, as_json=as_json))


@main.command()
@click.argument("name", required=False)
@told
def schema(name: str | None) -> None:
    """Print the JSON Schema of NAME; without NAME: the names."""
    from worker.ops.schema import print_schema

    sys.exit(print_schema(name))


@main.command(context_settings={"ignore_unknown_options": True})
@click.argument("options", nargs=-1)
def test(options: tuple[str, ...]) -> None:
    """Run the tests, in a checkout: ./kbw test [pytest options]."""
    fail(f"`kbw test {' '.join(options)}`".rstrip() + " runs from a checkout: use its ./kbw script")


def say(**facts: object) -> None:
    """A summary as JSON; the whole document is in its file."""
    click.echo(json.dumps(facts, ensure_ascii=False, indent=2))


def say_result(work: Callable[[], Answered]) -> None:
    """The last line, in exactly the form that callers of the old scripts read, also when nothing could be done."""
    from worker.ops.local import Answered, AnsweredError

    answered = Answered("")
    try:
        answered = work()
    except AnsweredError as error:
        answered = Answered(error.result_file)
        raise
    finally:
        click.echo(json.dumps({"success": answered.success, "resultFile": answered.result_file}, ensure_ascii=False))
    if not answered.success:
        fail(answered.reason)


for added in (*OPERATOR_COMMANDS, *KB_COMMANDS, *MATERIAL_COMMANDS, knowledge):
    main.add_command(added)

if __name__ == "__main__":
    main(prog_name="kbw")
