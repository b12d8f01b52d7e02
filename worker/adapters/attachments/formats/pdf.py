"""PDF text through PDFium, page by page until there is enough; must never run in the worker's own process."""

from __future__ import annotations

from typing import BinaryIO

import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_c

from worker.adapters.attachments.formats.sink import EnoughError, FormatError, Sink, check_time

_FAULTS = {
    pdfium_c.FPDF_ERR_PASSWORD: ("PASSWORD_PROTECTED", "needs a password"),
    pdfium_c.FPDF_ERR_SECURITY: ("PASSWORD_PROTECTED", "unknown encryption"),
}
_SMALL = 8 * 1024 * 1024
_ENOUGH_OF_A_SCAN = 20
_HYPHEN = "\x02"  # how PDFium writes a hyphen at a line's end


def extract(file: BinaryIO, sink: Sink, _kind: str) -> None:
    """The text layer of a PDF, pages parted by an empty line."""
    try:
        document = pdfium.PdfDocument(_source(file))
    except pdfium.PdfiumError as error:
        code, reason = _FAULTS.get(getattr(error, "err_code", None), ("CORRUPT", "PDFium cannot open it"))
        raise FormatError(code, reason) from error
    count = len(document)
    sink.meta["pageCount"] = count
    if count == 0:
        raise FormatError("CORRUPT", "no pages")
    unreadable = 0
    for number in range(count):
        if number >= _ENOUGH_OF_A_SCAN and not sink.visible:
            _check_time_of_a_scan()
        check_time()
        try:
            _read_page(document[number], sink)
        except pdfium.PdfiumError:
            unreadable += 1
        if sink.visible > sink.limit and number + 1 < count:
            raise EnoughError  # without the sink's margin: the next page costs more than a few characters are worth
    if unreadable:
        sink.meta["unreadablePages"] = unreadable
    if unreadable == count:
        raise FormatError("CORRUPT", "no page can be loaded")


def _source(file: BinaryIO) -> BinaryIO | bytes:
    """Small files as bytes: PDFium asks for hundreds of small pieces, each a call back into Python."""
    data = file.read(_SMALL + 1)
    if len(data) <= _SMALL:
        return data
    file.seek(0)
    return file


def _check_time_of_a_scan() -> None:
    """A thousand pictures without a word are a scan, not a file that takes too long."""
    try:
        check_time()
    except FormatError as error:
        raise FormatError("NO_TEXT_LAYER", "no text on any page that was read") from error


def _read_page(page: pdfium.PdfPage, sink: Sink) -> None:
    text_page = page.get_textpage()
    length = text_page.count_chars()
    # a page may hold megabytes of text: no more is asked for than is wanted
    text = text_page.get_text_range(0, min(length, 4 * sink.limit)) if length else ""
    text_page.close()
    page.close()
    sink.write(text.replace(_HYPHEN, "").replace("\r\n", "\n") + "\n\n")
