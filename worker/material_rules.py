"""``config/material.yaml`` and the word lists become the rules of material retrieval; must not decide anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tasks.knowledge.degrade import OnZero, read_matrix
from tasks.knowledge.leak import CardLabels
from tasks.knowledge.material import SETUPS, MaterialRules
from tasks.knowledge.question import FUNCTIONS, WordLists, read_words
from worker.setting_areas import MaterialSettings
from worker.settings import SettingsError

RULES = "material.yaml"
ABSTRACT, TRACK = "abstract_words.txt", "track_words.txt"
_MEANINGS = ("number", "kind", "names", "lines", "props", "setup", "technique")


def load_material_rules(folder: Path, settings: MaterialSettings) -> MaterialRules:
    """Raises :class:`SettingsError` that names file and field."""
    document = _document(folder / RULES)
    on_zero: OnZero = settings.on_zero
    try:
        matrix = read_matrix(document.get("degrade"), on_zero)
        labels = _labels(document.get("card_labels") or {})
        setups = _setups(document.get("setup_of_function") or {})
    except ValueError as error:
        raise SettingsError(f"{folder / RULES}: {error}") from error
    return MaterialRules(
        words=WordLists(abstract=_words(folder / ABSTRACT), track=_words(folder / TRACK)),
        labels=labels,
        matrix=matrix,
        setup_of_function=setups,
        kb_id=settings.kb_id,
        max_searches=settings.max_searches,
        match_count=settings.match_count,
        vector_threshold=settings.vector_threshold,
        timeout_s=settings.timeout_s,
    )


def _labels(document: Any) -> CardLabels:
    if not isinstance(document, dict) or set(document) - set(_MEANINGS):
        raise ValueError(f"card_labels: needs a mapping of {', '.join(_MEANINGS)}")
    if not all(isinstance(names, list) for names in document.values()):
        raise ValueError("card_labels: each meaning needs a list of labels")
    return CardLabels({meaning: tuple(map(str, names)) for meaning, names in document.items()})


def _setups(document: Any) -> dict[str, str]:
    if not isinstance(document, dict) or set(document) - set(FUNCTIONS) or set(document.values()) - set(SETUPS):
        raise ValueError(f"setup_of_function: needs {', '.join(FUNCTIONS)}, each with one of {', '.join(SETUPS)}")
    return {str(function): str(setup) for function, setup in document.items()}


def _document(path: Path) -> dict[str, Any]:
    try:
        document = yaml.safe_load(path.read_bytes())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise SettingsError(f"{path}: {(str(error).splitlines() or [type(error).__name__])[0]}") from error
    if not isinstance(document, dict):
        raise SettingsError(f"{path}: needs a mapping")
    return document


def _words(path: Path) -> frozenset[str]:
    try:
        return read_words(path.read_text("utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: {error}") from error
