"""``knowledge.yaml`` and ``pipelines.yaml`` as the settings name them; must not construct or ask a source."""

from __future__ import annotations

from pathlib import Path

from tasks.knowledge.secrets import allow_list
from tasks.knowledge.validate import Checked, Nodes, SourceText, check
from tasks.prompts.prompt import OUR_VARIABLES, knowledge_variables
from worker.outbound import AllowedHosts
from worker.settings import Settings, SettingsError, config_dir, listed

NODES: Nodes = {
    "kb_query": {stage: knowledge_variables(stage) for stage in ("select", "answer")},
    "material_search": {node: knowledge_variables(f"material_{node}") for node in ("rescreen", "transfer")},
}
"""Every ``AI_TASK`` node, and the variables of its shipped prompt that a source may take."""


def checked_files(settings: Settings, knowledge: Path | None = None, pipelines: Path | None = None) -> Checked:
    """Both files and all that is wrong with them; ``knowledge`` and ``pipelines``: others than the settings name.

    Raises :class:`SettingsError` for a file that was named and cannot be read.
    """
    area, folder = settings.knowledge, config_dir(settings)
    allowed = allow_list(listed(area.env))
    return check(
        _read(knowledge, area.file, folder / "knowledge.yaml"),
        _read(pipelines, area.pipelines_file, folder / "pipelines.yaml"),
        nodes=NODES,
        reserved=OUR_VARIABLES,
        env_allowed=allowed,
        plain_allowed=AllowedHosts(listed(area.allowed_hosts)).names,
    )


def usable_files(settings: Settings) -> Checked:
    """Both files, to be used. Raises :class:`SettingsError` that names the first error, with file and line."""
    checked = checked_files(settings)
    if checked.errors:
        more = f" (and {len(checked.errors) - 1} more: kbw knowledge validate)" if len(checked.errors) > 1 else ""
        raise SettingsError(f"{checked.errors[0]}{more}")
    return checked


def _read(given: Path | None, named: str, default: Path) -> SourceText:
    path = given or (Path(named).expanduser() if named else default)
    try:
        return SourceText(str(path), path.read_bytes().decode("utf-8-sig"))
    except FileNotFoundError as error:
        if given is None and not named:
            return SourceText(str(path), "")  # a config folder without these files: nothing is mounted
        raise SettingsError(f"{path}: no such file") from error
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path}: is no UTF-8 text") from error
