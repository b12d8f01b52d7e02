"""Fixtures of the model suites: a scripted server, and the driver of each kind that talks to it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests import scripted_model as scripted
from tests.fakes_model import StillClock
from tests.model_calls import DRIVERS, TOKEN, config
from worker.adapters.model.factory import ProbedDriver, build_driver


@pytest.fixture
def clock() -> StillClock:
    return StillClock()


@pytest.fixture
def server() -> Iterator[scripted.ScriptedModel]:
    with scripted.ScriptedModel(scripted.always(scripted.completion("好")), token=TOKEN) as running:
        yield running


@pytest.fixture(params=DRIVERS)
def driver(request: pytest.FixtureRequest, server: scripted.ScriptedModel, clock: StillClock) -> Iterator[ProbedDriver]:
    built = build_driver(config(request.param, server.url), clock)
    yield built
    built.close()
