"""Which link targets a reader may be given (CONTRACT §4.5): visible pages and URLs that were really seen."""

from __future__ import annotations

import posixpath
import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from urllib.parse import unquote

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_WEB = re.compile(r"https?://[^/?#\s]+", re.IGNORECASE)
_UNSAFE = re.compile(r"[\s\x00-\x20\x7f-\x9f\\<>]")
# A URL ends where no character follows that could go on with it: `https://a.b` does not occur in `https://a.b.c/d`.
_GOES_ON = re.compile(r"[.,;:!?]*[A-Za-z0-9/@%&=#+~$_-]")


@dataclass(frozen=True)
class Links:
    """``is_page`` knows the visible pages; ``seen`` are the texts in which an allowed URL occurs as a whole.

    ``in_qa``: the text becomes a page in ``qa/``, so that a path from the repository root needs ``../`` to lead there.
    """

    is_page: Callable[[str], bool]
    seen: tuple[str, ...] = ()
    in_qa: bool = False

    def allows(self, target: str) -> bool:
        """Whether ``target``, as a renderer would open it (entities and backslashes resolved), may be kept."""
        if not target or _UNSAFE.search(target):
            return self._is_spaced_page(target)
        if _SCHEME.match(target):
            return bool(_WEB.match(target)) and any(self._occurs(form) for form in {target, unquote(target)})
        return self._names_page(target)

    def written(self, target: str) -> str:
        """How an allowed ``target`` has to be written so that it leads where it is meant to."""
        path = unicodedata.normalize("NFC", unquote(target.partition("#")[0])).removeprefix("/")
        if not self.in_qa or not path or _SCHEME.match(target) or self.is_page(posixpath.normpath(f"qa/{path}")):
            return target
        return "../" + target.removeprefix("/").removeprefix("./")

    def _is_spaced_page(self, target: str) -> bool:
        """Blanks are the one unsafe character that page paths may hold."""
        return " " in target and not _UNSAFE.search(target.replace(" ", "")) and self._names_page(target)

    def _names_page(self, target: str) -> bool:
        """Relative to the repository root, or to ``qa/`` where QA pages lie."""
        if target.startswith("//") or _SCHEME.match(target):
            return False
        path = unicodedata.normalize("NFC", unquote(target.partition("#")[0])).removeprefix("/")
        if not path or _SCHEME.match(path):
            return False
        forms = {posixpath.normpath(path), posixpath.normpath(f"qa/{path}")}
        return any(self.is_page(form) for form in forms)

    @cached_property
    def _known(self) -> dict[str, bool]:
        """Of each URL asked for, whether it occurs: an answer may repeat one thousands of times."""
        return {}

    def _occurs(self, url: str) -> bool:
        if url not in self._known:
            self._known[url] = self._stands_in_seen(url)
        return self._known[url]

    def _stands_in_seen(self, url: str) -> bool:
        for text in self.seen:
            at = text.find(url)
            while at >= 0:
                if not _GOES_ON.match(text, at + len(url)):
                    return True
                at = text.find(url, at + 1)
        return False


NO_LINKS = Links(is_page=lambda path: False)  # noqa: ARG005 - nothing is a page
"""Keeps no target at all: for titles and other single lines that are no place for links."""
