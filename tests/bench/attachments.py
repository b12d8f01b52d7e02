"""CPU per attachment format beside the library used directly: ``python -m tests.bench.attachments [FOLDER]``.

Times are CPU milliseconds, the best of several tries in one run. "ours" is the extraction alone, imports done; "child"
is the whole process, start and imports included. ``FOLDER`` holds the shared corpus; without it only files made here
are measured.
"""

from __future__ import annotations

import os
import resource
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree import ElementTree

import pypdfium2
from python_calamine import CalamineWorkbook

from tests.attachment_files import docx, inline, pdf, pptx, shape, xlsx
from worker.adapters.attachments.child import ChildLimits, run_child
from worker.adapters.attachments.formats.extract import extract

LIMIT = 8_000
TRIES = 5


def pdfium(path: Path, limit: int | None) -> None:
    """What a careful user of pypdfium2 would write for a preview of ``limit`` characters; ``None`` reads all pages."""
    document = pypdfium2.PdfDocument(path)
    seen = 0
    for number in range(len(document)):
        seen += len(document[number].get_textpage().get_text_range().replace("\r\n", "\n").strip())
        if limit is not None and seen >= limit:
            break
    document.close()


def calamine(path: Path) -> None:
    """All cells of all sheets."""
    workbook = CalamineWorkbook.from_path(str(path))
    for name in workbook.sheet_names:
        workbook.get_sheet_by_name(name).to_python()


def whole_tree(path: Path) -> None:
    """docx the usual way: the whole body as a tree, then its text."""
    with zipfile.ZipFile(path) as package:
        root = ElementTree.fromstring(package.read("word/document.xml"))
    "".join(node.text or "" for node in root.iter() if node.tag.endswith("}t"))


def ours(path: Path) -> None:
    """The extraction as the child does it."""
    with path.open("rb") as file:
        extract(file, path.name, LIMIT)


def cpu_ms(work: Callable[[], object], tries: int = TRIES) -> float:
    """The least CPU of this process over several tries."""
    found = []
    for _ in range(tries):
        before = time.process_time()
        work()
        found.append(time.process_time() - before)
    return min(found) * 1000


def child_ms(path: Path, tries: int = 3) -> float:
    """The least CPU of a whole child process."""
    found = []
    for _ in range(tries):
        descriptor = os.open(path, os.O_RDONLY)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        run_child(descriptor, path.name, LIMIT, ChildLimits(), 30)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        os.close(descriptor)
        found.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(found) * 1000


def made_files(folder: Path) -> list[Path]:
    """Files whose size is the point."""
    paragraph = "这是一段用来测量的中文文字，内容没有意义，只有长度有意义。"
    rows = "".join(
        f'<row r="{n}">{inline(f"A{n}", f"第{n}行")}<c r="B{n}"><v>{n}</v></c><c r="C{n}"><v>{n * 0.5}</v></c></row>'
        for n in range(1, 60_001)
    )
    empty = "".join(f'<row r="{n}" spans="1:8"/>' for n in range(2, 1_048_576))
    files = {
        "pdf_10000_pages.pdf": pdf([f"Page {n} with a line of words to read" for n in range(10_000)]),
        "pdf_250_pages.pdf": pdf([f"Page {n} with a line of words to read" for n in range(250)]),
        "docx_5000_paragraphs.docx": docx(*[paragraph] * 5_000),
        "docx_20_paragraphs.docx": docx(*[paragraph] * 20),
        "xlsx_60000_rows.xlsx": xlsx({"表": rows}),
        "xlsx_million_empty_rows.xlsx": xlsx({"表": f'<row r="1">{inline("A1", "头")}</row>{empty}'}),
        "pptx_40_slides.pptx": pptx(*[shape(paragraph)] * 40),
        "text_gbk.txt": (paragraph * 4_000).encode("gb18030"),
        "page.html": ("<html><body>" + f"<div><p>{paragraph}</p></div>" * 10_000).encode(),
    }
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return [folder / name for name in files]


def references(path: Path) -> list[tuple[str, float]]:
    """The same file through the library used directly."""
    if path.suffix == ".pdf":
        return [
            ("pypdfium2, stop", cpu_ms(lambda: pdfium(path, LIMIT))),
            ("pypdfium2, all", cpu_ms(lambda: pdfium(path, None), 1)),
        ]
    if path.suffix in (".xlsx", ".xls"):
        return [("calamine, all", cpu_ms(lambda: calamine(path), 2))]
    if path.suffix == ".docx" and path.stat().st_size < 900_000:
        return [("whole tree", cpu_ms(lambda: whole_tree(path), 2))]
    return []


SKIPPED_REFERENCES = ("far_corner", "encrypted", "truncated", "password", "zero_bytes", "named", "xxe")


def main() -> None:
    """Print the table."""
    with TemporaryDirectory() as folder:
        paths = made_files(Path(folder))
        if len(sys.argv) > 1:
            paths += sorted(path for path in Path(sys.argv[1]).iterdir() if path.is_file())
        print(f"{'file':34}{'KiB':>8}{'ours':>9}{'child':>9}   beside it (CPU ms, ratio ours/it)")
        for path in paths:
            mine = cpu_ms(lambda path=path: ours(path))  # type: ignore[misc]
            others = [] if any(word in path.name for word in SKIPPED_REFERENCES) else references(path)
            shown = ", ".join(f"{name} {ms:.1f} ({mine / ms:.2f}x)" for name, ms in others)
            print(
                f"{path.name:34}{path.stat().st_size / 1024:8.0f}{mine:9.1f}{child_ms(path):9.1f}   {shown}", flush=True
            )


if __name__ == "__main__":
    main()
