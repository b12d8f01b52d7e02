"""Text in pictures and scanned pages, read by RapidOCR; only in a child process, and only with the extra ``ocr``.

Its models lie in its wheel and it asks no network. Reading is slow: lines are read one by one from the top, and what
was read when the time is over is what is shown.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO

import cv2
import numpy as np
import pypdfium2 as pdfium
from PIL import Image, ImageOps, UnidentifiedImageError
from rapidocr import RapidOCR

from worker.adapters.attachments.formats.sink import FormatError, Sink, check_time

_LONGEST_SIDE = 2_000  # an A4 page at 170 dots an inch
_DETECTED_SIDE = 960
_WIDEST = 1_500
_TILE = 1_600
_SEAM = 300
_MAX_PIXELS = 60_000_000
_MAX_FRAMES = 20
_SURE = 0.5
_PDF_SCALE = 200 / 72
_SETTINGS = {
    "Global.log_level": "critical",
    "Global.use_cls": False,
    "Det.limit_type": "max",
    "Det.limit_side_len": _DETECTED_SIDE,
    "EngineConfig.onnxruntime.intra_op_num_threads": 1,
    "EngineConfig.onnxruntime.inter_op_num_threads": 1,
}


def extract(file: BinaryIO, sink: Sink, kind: str) -> None:
    """The text of a picture, of each picture in a file of several, or of a PDF's pages."""
    sink.meta["ocr"] = True
    cv2.setNumThreads(1)
    engine: Any = RapidOCR(params=_SETTINGS)
    for picture in _pages(file, sink) if kind == "pdf" else _frames(file):
        for tile in _tiles(picture):
            _read(engine, tile, sink)
        sink.write("\n")


def _pages(file: BinaryIO, sink: Sink) -> Iterator[Image.Image]:
    try:
        document = pdfium.PdfDocument(file)
    except pdfium.PdfiumError as error:
        raise FormatError("CORRUPT", "PDFium cannot open it") from error
    sink.meta["pageCount"] = len(document)
    for number in range(len(document)):
        page = document[number]
        scale = min(_PDF_SCALE, _LONGEST_SIDE / max(*page.get_size(), 1))
        yield page.render(scale=scale).to_pil().convert("RGB")
        page.close()


def _frames(file: BinaryIO) -> Iterator[Image.Image]:
    try:
        picture = Image.open(file)
        if picture.width * picture.height > _MAX_PIXELS:
            raise FormatError("TOO_LARGE", "too many pixels")
        for number in range(min(getattr(picture, "n_frames", 1), 1 if picture.format == "GIF" else _MAX_FRAMES)):
            picture.seek(number)
            yield _fitted(ImageOps.exif_transpose(picture).convert("RGBA"))
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError) as error:
        raise FormatError("CORRUPT", f"picture: {type(error).__name__}") from error


def _fitted(picture: Image.Image) -> Image.Image:
    """On white where it is transparent; no larger than letters need. A long screenshot keeps its width."""
    page = Image.new("RGB", picture.size, "white")
    page.paste(picture, mask=picture.getchannel("A"))
    long = page.height > 2 * page.width
    scale = _WIDEST / page.width if long else _LONGEST_SIDE / max(page.size)
    if scale < 1:
        page = page.resize((max(1, round(page.width * scale)), max(1, round(page.height * scale))))
    return page


def _tiles(page: Image.Image) -> Iterator[Any]:
    """The page from the top as arrays of pixels, cut where a row of pixels is most alike: between two lines."""
    pixels = np.asarray(page)[:, :, ::-1]
    top = 0
    while len(pixels) - top > _TILE + _SEAM:
        seam = pixels[top + _TILE - _SEAM : top + _TILE].std(axis=(1, 2))
        bottom = top + _TILE - _SEAM + int(seam.argmin())
        yield pixels[top:bottom]
        top = bottom
    yield pixels[top:]


def _read(engine: Any, tile: Any, sink: Sink) -> None:
    check_time()
    boxes = getattr(engine(tile, use_det=True, use_cls=False, use_rec=False), "boxes", None)
    if boxes is None:
        return
    last: float | None = None
    for box in boxes:
        check_time()
        found = engine.recognize_txt(engine.crop_text_regions(tile, [box]))
        for text, score in zip(found.txts, found.scores, strict=False):
            if score >= _SURE and text.strip():
                middle = float(box[:, 1].mean())
                same_line = last is not None and abs(middle - last) < np.ptp(box[:, 1]) / 2
                sink.write(("  " if same_line else "\n") + text)
                last = middle
