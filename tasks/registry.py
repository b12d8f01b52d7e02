"""Which pipeline serves which skill; must not know what a pipeline does."""

from __future__ import annotations

from tasks.material import material
from tasks.pipeline import Pipeline
from tasks.query import query

PIPELINES = {pipeline.skill: pipeline for pipeline in (query, material)}


def pipeline_of(skill: str) -> Pipeline:
    """The pipeline of a skill; a job of an unknown one runs as a query, whose first stage refuses it with a result."""
    return PIPELINES.get(skill, query)
