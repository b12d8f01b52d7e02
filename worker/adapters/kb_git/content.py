"""Page files as pages: what a blob says, independent of where it lies; must not know commits or catalogs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tasks.contract.shape import Note
from tasks.kb.page import Page, decode, read_page
from worker.adapters.kb_git.git import BareRepo, Blob, DamagedError

MAX_PAGE_BYTES = 2 << 20
"""Of a page file; the rest is neither searched nor shown."""

_BINARY_PROBE = 8_000


@dataclass(frozen=True)
class Content:
    """One page file. ``odd``: codes and Chinese remarks about the file itself."""

    page: Page
    odd: tuple[tuple[str, str], ...] = ()

    def notes(self, path: str) -> list[Note]:
        """Warnings for whoever is shown the page at ``path``."""
        return self.page.notes(path) + [
            Note(code=code, path=path, message=f"页面 {path} {text}") for code, text in self.odd
        ]


def read_contents(repo: BareRepo, blobs: Sequence[str]) -> dict[str, Content]:
    """The given blobs, analysed."""
    return {found.id: analyse(found) for found in read_blobs(repo, blobs)}


def read_blobs(repo: BareRepo, blobs: Sequence[str]) -> Iterator[Blob]:
    """The first 2 MiB of each."""
    for blob, found in repo.read_many(blobs, MAX_PAGE_BYTES):
        if found is None:
            raise DamagedError(f"object {blob} is missing")
        yield found


def page_text(found: Blob) -> str:
    """The file's text, decoded leniently."""
    return decoded(found.data, is_cut=found.size > len(found.data))[0]


def analyse(found: Blob) -> Content:
    """What one blob says as a page."""
    odd: list[tuple[str, str]] = []
    is_cut = found.size > len(found.data)
    if is_cut:
        odd.append(("PAGE_TOO_LARGE", f"超过 {MAX_PAGE_BYTES >> 20} MiB，只读取开头部分"))
    text, guess = decoded(found.data, is_cut=is_cut)
    if guess is None:
        odd.append(("PAGE_BINARY", "是二进制文件，无法作为文本读取"))
    elif guess:
        odd.append(("PAGE_ENCODING", f"不是 UTF-8 编码，按 {guess} 解读，可能有误"))
    return Content(read_page(text), tuple(odd))


def decoded(data: bytes, *, is_cut: bool) -> tuple[str, str | None]:
    """Text and the guessed encoding; ``None`` for bytes that are no text. A character cut in half is dropped."""
    is_utf16 = data[:2] in (b"\xff\xfe", b"\xfe\xff")
    if not is_utf16 and b"\0" in data[:_BINARY_PROBE]:
        return "", None
    for _ in range(4 if is_cut else 1):
        text = decode(data)
        if not text.guess:
            break
        data = data[:-1]
    return text.text, text.guess
