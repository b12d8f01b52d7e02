"""How the characters of one job are shared among its attachments; must not know files."""

from __future__ import annotations

from collections.abc import Sequence


def fair_shares(lengths: Sequence[int], each: int, total: int) -> list[int]:
    """Characters for each text: small ones whole, the rest equally, at most ``each`` and together at most ``total``.

    Leftovers of the division go to the first of the long ones, so the shares are always the same for the same lengths.
    """
    wanted = [min(length, each) for length in lengths]
    shares = [0] * len(wanted)
    left = total
    waiting = sorted(range(len(wanted)), key=lambda index: (wanted[index], index))
    while waiting:
        index = waiting.pop(0)
        # dividing by what still waits gives small texts their whole length and lets the others share what they leave
        shares[index] = min(
            wanted[index], -(-left // (len(waiting) + 1)) if not waiting else left // (len(waiting) + 1)
        )
        left -= shares[index]
    return shares
