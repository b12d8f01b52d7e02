"""What the model is told, in Chinese, as versioned package data; must not decide what fits nor talk to a model."""

from __future__ import annotations

from tasks.prompts.instructions import context_instructions, result_contract
from tasks.prompts.template import PROMPT_VERSION

__all__ = ["PROMPT_VERSION", "context_instructions", "result_contract"]
