"""What all commands of ``kbw`` share: errors become a line and an exit code, logs are set up; must not do any work."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from worker.settings import Settings

AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
STATES = ("queued", "running", "parked", "done", "failed", "cancelled")


def told(command: Callable[..., Any]) -> Callable[..., Any]:
    """Turn the errors that an operator can act on into one line and exit code 1."""

    @wraps(command)
    def wrapped(*args: Any, **options: Any) -> Any:
        try:
            return command(*args, **options)
        except (click.exceptions.Exit, click.ClickException, click.Abort):
            raise
        except BrokenPipeError:  # whoever read our output went away (`| head`): click ends without a word
            raise
        except Exception as error:  # noqa: BLE001 - a person at a terminal gets a line, not a traceback
            fail(_masked(_line_of(error)))

    return wrapped


def _line_of(error: Exception) -> str:
    from tasks.errors import Code, JobError, StoreUnavailableError
    from worker.ops.failure import OperationFailedError
    from worker.settings import SettingsError

    if isinstance(error, JobError):
        return f"{error.code}: {error.en}"
    if isinstance(error, SettingsError | OperationFailedError | StoreUnavailableError):
        return str(error)
    logging.getLogger("kbw.cli").debug("crashed", exc_info=error)
    return f"{Code.INTERNAL}: {type(error).__name__}: {error}; KBW_LOG_LEVEL=DEBUG shows where"


def _masked(line: str) -> str:
    """Without our secrets: what a server wrote may repeat the key that it was sent."""
    from worker.masking import mask_of
    from worker.settings import Settings, SettingsError

    try:
        settings = Settings.load()
    except SettingsError:
        return line  # then no server was asked
    return mask_of(settings).text(line)


def fail(text: str) -> None:
    """End with exit code 1 and a line on standard error."""
    click.echo(f"kbw: {text}", err=True)
    sys.exit(1)


def settings_with_logging(level: str = "") -> Settings:
    """The settings; logs of this process are masked with their secrets from here on."""
    from worker.log import set_up_logging
    from worker.masking import mask_of
    from worker.settings import Settings

    settings = Settings.load()
    mask = mask_of(settings)
    if settings.worker.log_level == "DEBUG":  # whoever sets this wants to see it all
        level = level and "DEBUG"
    set_up_logging(mask, "text" if level else settings.worker.log_format, level or settings.worker.log_level)
    return settings


UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def duration(text: str) -> float:
    """``90s``, ``15m``, ``1h``, ``30d`` or several together (``1d12h``), in seconds; else wrong usage."""
    parts = re.findall(r"(\d+(?:\.\d+)?)([smhd])", text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise click.BadParameter(f"{text!r} is no duration: write 90s, 15m, 1h or 30d")
    return sum(float(number) * UNITS[unit] for number, unit in parts)
