"""Facts about one knowledge base page, as context, evidence and results repeat them."""

from __future__ import annotations

from tasks.contract.shape import OpenShape, Scalar, Shape


class PageFacts(Shape):
    """A page's metadata (CONTRACT §4.1 ``catalogPages``); lists hold at most 10 items."""

    path: str
    title: str
    type: str = ""
    kb_type: str = ""
    keywords: tuple[str, ...] = ()
    project_ids: tuple[Scalar, ...] = ()
    source_ids: tuple[Scalar, ...] = ()
    updated_at: str = ""
    related_concepts: tuple[Scalar, ...] = ()
    related_resources: tuple[Scalar, ...] = ()
    related_code_pages: tuple[Scalar, ...] = ()
    related_pages: tuple[Scalar, ...] = ()


class PageCard(PageFacts):
    """A page with the beginning of its text: an aid for choosing, never evidence."""

    content_preview: str = ""


class SourceTrace(OpenShape):
    """Where a page's knowledge came from, out of the page's frontmatter ``sources[]``."""

    source_id: Scalar | None = None
    source_type: str = ""
    platform: str = ""
    title: str = ""
    file_name: str = ""
    archived_path: str = ""
    url: str = ""
    commit_hash: str = ""
    branch: str = ""
    sha256: str = ""
    status: str = ""
    ingested_at: str = ""
