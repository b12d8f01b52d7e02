"""PDF text through PDFium, page by page until there is enough; must never run in the worker's own process."""

from __future__ import annotations

import ctypes
import re
from typing import BinaryIO

import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_c

from worker.adapters.attachments.formats.decode import decode
from worker.adapters.attachments.formats.sink import EnoughError, FormatError, Sink, check_time

_FAULTS = {
    pdfium_c.FPDF_ERR_PASSWORD: ("PASSWORD_PROTECTED", "needs a password"),
    pdfium_c.FPDF_ERR_SECURITY: ("PASSWORD_PROTECTED", "unknown encryption"),
}
_SMALL = 8 * 1024 * 1024
_ENOUGH_OF_A_SCAN = 20
_HYPHEN = "\x02"  # how PDFium writes a hyphen at a line's end
_FIRST_LOOK, _SAMPLED = 6, 64
_MAX_ATTACHED = 100
_MAX_NOTES = 300
_LONGEST_NOTE = 4_000
_BYTES_AS_LETTERS = re.compile("[\x80-\xff]{6,}")
"""Old Chinese fonts that name no encoding: PDFium shows their double bytes as Latin letters."""
_NOTE_KEYS = {
    pdfium_c.FPDF_ANNOT_WIDGET: b"V",
    pdfium_c.FPDF_ANNOT_TEXT: b"Contents",
    pdfium_c.FPDF_ANNOT_FREETEXT: b"Contents",
    pdfium_c.FPDF_ANNOT_HIGHLIGHT: b"Contents",
    pdfium_c.FPDF_ANNOT_UNDERLINE: b"Contents",
    pdfium_c.FPDF_ANNOT_STAMP: b"Contents",
}
"""What people fill in and write onto a page: it is no part of the page's own text."""


def extract(file: BinaryIO, sink: Sink, _kind: str) -> None:
    """The text layer of a PDF, pages parted by an empty line; after each page its form fields and notes."""
    document = _opened(file)
    count = len(document)
    sink.meta["pageCount"] = count
    if count == 0:
        raise FormatError("CORRUPT", "no pages")
    _read_pages(document, count, sink)
    attached = _attached_names(document)
    if attached:
        sink.meta["attachmentCount"] = len(attached)
        if sink.visible:  # alone they are no text: a scan with its data beside it is still a scan
            sink.write("附件：" + "、".join(attached) + "\n")


def _opened(file: BinaryIO) -> pdfium.PdfDocument:
    try:
        return pdfium.PdfDocument(_source(file))
    except pdfium.PdfiumError as error:
        code, reason = _FAULTS.get(getattr(error, "err_code", None), ("CORRUPT", "PDFium cannot open it"))
        raise FormatError(code, reason) from error


def _read_pages(document: pdfium.PdfDocument, count: int, sink: Sink) -> None:
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


def _attached_names(document: pdfium.PdfDocument) -> list[str]:
    found = [document.get_attachment(index) for index in range(min(document.count_attachments(), _MAX_ATTACHED))]
    return [name for attached in found if (name := attached.get_name())]


def _read_page(page: pdfium.PdfPage, sink: Sink) -> None:
    text_page = page.get_textpage()
    length = text_page.count_chars()
    # a page may hold megabytes of text: no more is asked for than is wanted
    text = text_page.get_text_range(0, min(length, 4 * sink.limit)) if length else ""
    if _is_garbled(text_page, length):
        text = "\ufffd" * len(text)
    text_page.close()
    text = _BYTES_AS_LETTERS.sub(_as_chinese, text.replace(_HYPHEN, "").replace("\r\n", "\n"))
    notes = [note for note in _notes(page) if note not in text]
    page.close()
    sink.write("\n".join([text, *notes]) + "\n\n")


def _is_garbled(text_page: pdfium.PdfTextPage, length: int) -> bool:
    """Whether most characters have no meaning: a font without a map to Unicode, whose glyph numbers we would show."""
    for samples in (_FIRST_LOOK, _SAMPLED):  # each costs a call, and nearly every page is well after a few
        places = range(0, length, max(1, length // samples))
        bad = sum(1 for place in places if pdfium_c.FPDFText_HasUnicodeMapError(text_page, place) == 1)
        if 2 * bad <= len(places):
            return False
    return True


def _as_chinese(letters: re.Match[str]) -> str:
    try:
        found = decode(letters.group().encode("latin-1"))
    except FormatError:
        return letters.group()
    return found.text if found.encoding in ("gb18030", "cp950", "big5hkscs") else letters.group()


def _notes(page: pdfium.PdfPage) -> list[str]:
    """Form fields that are filled in, and people's notes, in the page's order."""
    notes = []
    for index in range(min(pdfium_c.FPDFPage_GetAnnotCount(page), _MAX_NOTES)):
        annotation = pdfium_c.FPDFPage_GetAnnot(page, index)
        if annotation:
            key = _NOTE_KEYS.get(pdfium_c.FPDFAnnot_GetSubtype(annotation))
            if key and (note := _string(annotation, key)):
                notes.append(note)
            pdfium_c.FPDFPage_CloseAnnot(annotation)
    return notes


def _string(annotation: pdfium_c.FPDF_ANNOTATION, key: bytes) -> str:
    size = min(pdfium_c.FPDFAnnot_GetStringValue(annotation, key, None, 0), 2 * _LONGEST_NOTE)
    if size <= 2:  # nothing but the closing zero
        return ""
    buffer = ctypes.create_string_buffer(size)
    pdfium_c.FPDFAnnot_GetStringValue(annotation, key, ctypes.cast(buffer, ctypes.POINTER(pdfium_c.FPDF_WCHAR)), size)
    return buffer.raw.decode("utf-16-le", "ignore").rstrip("\0").strip()
