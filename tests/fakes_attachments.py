"""An attachment reader without files and processes: previews and faults by storage path."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from tasks.contract.context import AttachmentFault, AttachmentView, Limits
from tasks.contract.payload import AttachmentRef


class FakeAttachmentReader:
    """``texts`` by storage path; ``faults`` by storage path are codes; anything else is ``NOT_FOUND``."""

    def __init__(self, texts: Mapping[str, str] | None = None, faults: Mapping[str, str] | None = None) -> None:
        self.texts = dict(texts or {})
        self.faults = dict(faults or {})
        self.calls: list[tuple[tuple[AttachmentRef, ...], str | None]] = []

    def read(
        self, attachments: Sequence[AttachmentRef], shared_dir: str | None, limits: Limits
    ) -> list[AttachmentView]:
        """See :class:`tasks.ports.AttachmentReader`. Long texts share the total equally, without the finer rules."""
        self.calls.append((tuple(attachments), shared_dir))
        share = min(limits.max_attachment_chars_per_file, limits.max_total_attachment_chars // max(1, len(attachments)))
        return [self._view(ref, share) for ref in attachments]

    def _view(self, ref: AttachmentRef, share: int) -> AttachmentView:
        path = ref.storage_path or ""
        code = "NO_FILE" if not path else self.faults.get(path, "" if path in self.texts else "NOT_FOUND")
        text = "" if code else self.texts[path][:share]
        digest = hashlib.sha256(self.texts.get(path, "").encode()).hexdigest()
        if not code and ref.sha256 and ref.sha256 != digest:
            code, text = "INTEGRITY_MISMATCH", ""
        return AttachmentView(
            attachment_id=ref.attachment_id,
            file_name=ref.file_name,
            mime_type=ref.mime_type,
            sha256=ref.sha256 or ("" if code else digest),
            size=ref.size or (0 if code else len(self.texts[path].encode())),
            text_preview=text,
            preview_available=not code,
            preview_status="unavailable" if code else "truncated" if len(self.texts[path]) > share else "ok",
            error=AttachmentFault(code=code, message=f"附件《{ref.file_name}》无法读取（{code}）。") if code else None,
            metadata={} if code else {"detectedType": "text", "verified": bool(ref.sha256)},
        )
