"""How the characters of one job are shared among its attachments; must not know files."""

from __future__ import annotations

from collections.abc import Sequence


def fair_shares(lengths: Sequence[int], each: int, total: int) -> list[int]:
    """Characters for each text: small ones whole, the rest equally, at most ``each`` and together at most ``total``.

    The same lengths always give the same shares; equal texts differ by at most one character.
    """
    wanted = [min(length, each) for length in lengths]
    shares = [0] * len(wanted)
    left = total
    smallest_first = sorted(range(len(wanted)), key=lambda index: (wanted[index], index))
    for done, index in enumerate(smallest_first):
        # an equal part of what is left: a small text takes less, and the later ones share what it leaves
        shares[index] = min(wanted[index], left // (len(wanted) - done))
        left -= shares[index]
    return shares
