"""The commands of material retrieval and FAQ batches: argument parsing only; what they do is in ``worker.ops``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from worker.command import AS_JSON, settings_with_logging, told

FILE = click.Path(path_type=Path, dir_okay=False)


class FileOrCommand(click.Group):
    """``kbw material FILE`` beside ``kbw material eval FILE``: what is no sub-command is the file of ``run``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put ``run`` in front of a file name."""
        first = next((arg for arg in args if not arg.startswith("-")), "")
        if first and first not in self.commands and not {"-h", "--help"} & set(args):
            args = ["run", *args]
        return super().parse_args(ctx, args)


@click.group(cls=FileOrCommand)
def material() -> None:
    """Material for the nodes of an outline: `kbw material FILE` prints {material_content}."""


@material.command("run", hidden=True)
@click.argument("file", type=FILE)
@AS_JSON
@told
def run(file: Path, *, as_json: bool) -> None:
    """Search, re-screen and transfer for the nodes of a payload or of a bare {nodes: […]} file (JSON or YAML)."""
    from worker.ops.material import run_material

    sys.exit(run_material(file, settings_with_logging("WARNING"), as_json=as_json))


MATERIAL_COMMANDS: tuple[click.Command, ...] = (material,)
