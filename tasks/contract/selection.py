"""``page-selection.json``: the pages that the model wants to read (CONTRACT §4.2)."""

from __future__ import annotations

from enum import StrEnum

from tasks.contract.shape import Note, Shape


class ReadLevel(StrEnum):
    """How far a model reply had to be helped before it could be read, best first (CONTRACT §4.3)."""

    EXACT = "exact"
    UNWRAPPED = "unwrapped"
    NORMALIZED = "normalized"
    REPAIRED = "repaired"
    GUESSED = "guessed"

    @property
    def rank(self) -> int:
        """0 for ``exact`` … 4 for ``guessed``; the worse of two levels is the one with the higher rank."""
        return list(ReadLevel).index(self)


class SelectedPage(Shape):
    """One choice, as the model wrote it; it is checked against the visible pages by ``fetch``."""

    path: str
    reason: str = ""
    expected_use: str = ""


class PageSelection(Shape):
    """The model's choice. Empty is legal: the job goes on without evidence."""

    rationale: str = ""
    selected_pages: tuple[SelectedPage, ...] = ()
    unresolved_questions: tuple[str, ...] = ()
    read_level: ReadLevel = ReadLevel.EXACT
    warnings: tuple[Note, ...] = ()


class MissingPage(Shape):
    """A chosen path that was not read: ``unknown | hidden | unsafe | duplicate | over_limit``."""

    path: str
    reason: str
