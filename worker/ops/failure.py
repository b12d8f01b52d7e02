"""How an operator's command says that it could not be done."""

from __future__ import annotations


class OperationFailedError(Exception):
    """The operation was understood and failed; the text says why and what to do."""
