"""The driver for having no model: every call says which settings to set; never answers anything itself."""

from __future__ import annotations

from tasks.errors import Code, PermanentError
from tasks.ports import ModelCall, RawReply
from worker.adapters.model.probing import Finding

NOT_CONFIGURED_EN = (
    "no model is configured; set OPENCLAW_GATEWAY_URL and OPENCLAW_GATEWAY_TOKEN,"
    " or KBW_LLM_BASE_URL, KBW_LLM_API_KEY and KBW_LLM_MODEL"
)
NOT_CONFIGURED_ZH = (
    "未配置模型，无法回答；请设置 OPENCLAW_GATEWAY_URL 和 OPENCLAW_GATEWAY_TOKEN，"
    "或设置 KBW_LLM_BASE_URL、KBW_LLM_API_KEY 和 KBW_LLM_MODEL"
)


class AbsentDriver:
    """No usable model. ``en`` and ``zh`` say what is missing or wrong in the settings."""

    def __init__(self, en: str = NOT_CONFIGURED_EN, zh: str = NOT_CONFIGURED_ZH) -> None:
        self._en = en
        self._zh = zh

    @property
    def name(self) -> str:
        """``none``."""
        return "none"

    @property
    def endpoint(self) -> str:
        """There is none."""
        return ""

    def complete(self, call: ModelCall) -> RawReply:  # noqa: ARG002 the port's signature
        """Raises ``NO_MODEL``, always."""
        raise PermanentError(Code.NO_MODEL, en=self._en, zh=self._zh)

    def probe(self) -> list[Finding]:
        """One failure: the settings."""
        what, _, cure = self._en.partition("; ")
        return [Finding("model", "fail", what, cure)]

    def close(self) -> None:
        """Nothing is open."""
