"""The commands of material retrieval and FAQ batches: argument parsing only; what they do is in ``worker.ops``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from worker.commands.shared import AS_JSON, duration, settings_with_logging, told

FILE = click.Path(path_type=Path, dir_okay=False)
FOLDER = click.Path(path_type=Path, file_okay=False)


class FileOrCommand(click.Group):
    """``kbw material FILE`` beside ``kbw material eval FILE``: what is no sub-command is the file of ``run``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put ``run`` in front of a file name."""
        first = next((arg for arg in args if not arg.startswith("-")), "")
        if first and first not in self.commands and not {"-h", "--help"} & set(args):
            args = ["run", *args]
        return super().parse_args(ctx, args)


@click.group(cls=FileOrCommand, options_metavar="", subcommand_metavar="FILE [--json] | eval FILE [OPTIONS]")
def material() -> None:
    """Material for the nodes of an outline.

    `kbw material FILE` prints {material_content} for a payload or a file with `nodes` (JSON or YAML); --json prints the
    whole result.
    """


@material.command("run", hidden=True)
@click.argument("file", type=FILE)
@AS_JSON
@told
def run(file: Path, *, as_json: bool) -> None:
    """Search, re-screen and transfer for the nodes of a payload or of a bare {nodes: […]} file (JSON or YAML)."""
    from worker.ops.material import run_material

    sys.exit(run_material(file, settings_with_logging("WARNING"), as_json=as_json))


OUT = click.option("--out", type=FOLDER, default=Path("out"), show_default=True, help="Folder of logs and reports.")


@material.command("eval")
@click.argument("file", type=FILE)
@AS_JSON
@OUT
@told
def evaluate(file: Path, out: Path, *, as_json: bool) -> None:
    """Measure a base with at least 10 questions.

    Zero hits, crowding-out between kinds, enough at match_count 3 (table, JSON, SVG).
    """
    from worker.ops.material_eval import evaluate_file

    sys.exit(evaluate_file(file, settings_with_logging("WARNING"), out=out, as_json=as_json))


# ---------------------------------------------------------------- FAQ batches


KB = click.option("--kb", default="", help="The base, by name; default: KBW_WEKNORA_KB.")
PLAN = click.argument("plan_file", metavar="PLAN", type=FILE)
DEADLINE = click.option("--deadline", type=duration, default="2h", help="Give up after this long: 90s, 15m, 2h.")


@click.group()
def faq() -> None:
    """FAQ batches into WeKnora: plan, try, import, verify.

    Over REST. A killed import goes on with `resume`.
    """


CARDS = """\b
Each card is a question, its answer, and other ways to ask.

\b
cards.md:
  ## How do I hand in an expense?
  相似问：Expense form
  Send the form with the receipt to finance.

\b
cards.yaml:
  cards:
    - question: How do I hand in an expense?
      similar: [Expense form]
      answers: [Send the form with the receipt to finance.]

\b
cards.jsonl:
  {"question": "How do I hand in an expense?", "similar": ["Expense form"], "answers": ["Send the form."]}

\b
In Markdown each heading of the deepest level is a card. Lines 标准问 (instead of the heading), 相似问 and 反例问
(questions it must not answer) are its questions, all the rest is its answer. Further fields: negative, tag,
answer_strategy.
"""


@faq.command("plan", epilog=CARDS)
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=FILE)
@click.option("--output", type=FILE, required=True, help="Where the plan goes (.json).")
@click.option("--replace", is_flag=True, help="A plan that empties the base first (import asks for the base's name).")
@click.option("--batch", type=click.IntRange(1, 200), default=200, show_default=True, help="Cards in one import.")
@click.option("--offline", is_flag=True, help="Do not compare with what the base has.")
@KB
@OUT
@told
def faq_plan(files: tuple[Path, ...], output: Path, kb: str, batch: int, out: Path, **flags: bool) -> None:
    """Read and check cards; write the imports to a plan file.

    Cards are .md, .yaml, .json or .jsonl.
    """
    from worker.ops.faq import plan

    mode = "replace" if flags["replace"] else "append"
    settings = settings_with_logging("WARNING")
    sys.exit(plan(files, output, settings, kb=kb, mode=mode, size=batch, out=out, offline=flags["offline"]))  # type: ignore[arg-type]  # one of two


@faq.command("dry-run")
@PLAN
@DEADLINE
@OUT
@told
def faq_dry_run(plan_file: Path, deadline: float, out: Path) -> None:
    """Let the server check the plan without storing anything."""
    from worker.ops.faq import dry_run

    sys.exit(dry_run(plan_file, settings_with_logging("WARNING"), out=out, deadline_s=deadline))


@faq.command("import")
@PLAN
@click.option("--replace", default="", metavar="NAME", help="For a replacing plan: the base's name, typed.")
@DEADLINE
@OUT
@told
def faq_import(plan_file: Path, replace: str, deadline: float, out: Path) -> None:
    """Import the plan, batch by batch, and compare the base with it."""
    from worker.ops.faq import run_import

    settings = settings_with_logging("WARNING")
    sys.exit(run_import(plan_file, settings, out=out, deadline_s=deadline, replace=replace, resume=False))


@faq.command("resume")
@PLAN
@click.option("--replace", default="", metavar="NAME", help="For a replacing plan: the base's name, typed.")
@DEADLINE
@OUT
@told
def faq_resume(plan_file: Path, replace: str, deadline: float, out: Path) -> None:
    """Go on with an import that was stopped.

    No card twice, none missing.
    """
    from worker.ops.faq import run_import

    settings = settings_with_logging("WARNING")
    sys.exit(run_import(plan_file, settings, out=out, deadline_s=deadline, replace=replace, resume=True))


@faq.command("verify")
@PLAN
@click.option("--golden", type=FILE, help="Lines of {question, expected} to ask as well.")
@click.option("--questions", type=click.IntRange(0), default=15, show_default=True, help="Cards asked; 0: all.")
@AS_JSON
@OUT
@told
def faq_verify(plan_file: Path, golden: Path | None, questions: int, out: Path, *, as_json: bool) -> None:
    """Compare the base with the plan; ask for its cards.

    hit@1, hit@3, zero hits, magnets.
    """
    from worker.ops.faq import verify

    settings = settings_with_logging("WARNING")
    sys.exit(verify(plan_file, settings, golden=golden, questions=questions, out=out, as_json=as_json))


@faq.command("export")
@click.option("--output", type=FILE, required=True, help="Where the entries go (.json).")
@KB
@OUT
@told
def faq_export(kb: str, output: Path, out: Path) -> None:
    """All entries of a base as JSON, which an import takes again."""
    from worker.ops.faq import export

    sys.exit(export(settings_with_logging("WARNING"), kb=kb, output=output, out=out))


MATERIAL_COMMANDS: tuple[click.Command, ...] = (material, faq)
