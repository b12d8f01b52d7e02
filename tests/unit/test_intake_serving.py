"""The ways in of one process live and end together."""

from __future__ import annotations

from threading import Event, Timer

import pytest

from worker.intake.serving import serve_side_by_side


def test_all_ways_run_until_they_are_told_to_stop() -> None:
    stop, ran = Event(), []

    def way(name: str) -> None:
        stop.wait(60)
        ran.append(name)

    Timer(0.05, stop.set).start()
    serve_side_by_side([("one", lambda _: way("one")), ("two", lambda _: way("two"))], stop)
    assert sorted(ran) == ["one", "two"]


def test_a_way_that_breaks_ends_the_others_so_that_the_supervisor_starts_all_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(stop: Event) -> None:
        raise OSError("gone")

    def steady(stop: Event) -> None:
        stop.wait(60)

    stop = Event()
    serve_side_by_side([("steady", steady), ("broken", broken)], stop)
    assert stop.is_set()
    assert [record.message for record in caplog.records] == ["intake.way_ended"]
