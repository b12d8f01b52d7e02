"""What is wrong with a server, and the one line that cures it; must not decide what happens next."""

from __future__ import annotations


class ServerFaultError(Exception):
    """The Redis or Valkey server cannot be used. ``en`` says why, ``cure`` what the operator does about it."""

    def __init__(self, en: str, *, cure: str) -> None:
        super().__init__(f"{en} {cure}")
        self.en = en
        self.cure = cure
