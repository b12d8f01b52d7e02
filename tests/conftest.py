"""Fixtures for all tiers: where the shared material lies, logging as it was, and no sockets in unit tests."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest

# the machine is noisy: how long an example takes says nothing. Each run tries the same examples, so that a red run can
# be repeated; --hypothesis-profile=explore tries others
hypothesis.settings.register_profile("explore", deadline=None)
hypothesis.settings.register_profile("kbw", deadline=None, derandomize=True)
hypothesis.settings.load_profile("kbw")

SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(scope="session")
def shared() -> Callable[[str], Path]:
    """``shared("frontmatter")``: a folder of the material beside the project; skips, saying so, without it."""

    def find(name: str) -> Path:
        path = SHARED / name
        if not path.exists():
            pytest.skip(f"{path} is not here: this test reads material that is not part of the project")
        return path

    return find


@pytest.fixture(autouse=True)
def _logging_of_the_test_run() -> Iterator[None]:
    """A command sets up the logging of its process, which here is the test run's: the next test gets it back."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(capture=False)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "/tests/unit/" in str(item.path):
            item.add_marker(pytest.mark.disable_socket)
