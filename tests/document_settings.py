"""Writes ``config/kbw.toml`` from the settings: run ``python -m tests.document_settings`` after changing one."""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import SecretStr

from worker.setting_areas import AREAS

TARGET = Path(__file__).resolve().parents[1] / "config" / "kbw.toml"
HEAD = """\
# All settings of kbw with their defaults. Name a copy of this file in KBW_CONFIG; the environment wins over it.
# An empty text means not set. `kbw doctor --settings` shows what is in force and where it comes from.
# Keep secrets (GITEA_BOT_TOKEN, OPENCLAW_GATEWAY_TOKEN, KBW_LLM_API_KEY, KBW_HTTP_TOKEN) in the environment.
"""


def documented() -> str:
    """The whole file: each setting below its meaning, by area."""
    lines = [HEAD]
    for area in AREAS.values():
        lines.append(f"# ---- {area.__doc__}\n")
        for field in area.model_fields.values():
            default = "" if isinstance(field.default, SecretStr) else field.default
            lines += [f"# {field.description}", f"{field.alias} = {json.dumps(default, ensure_ascii=False)}"]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    TARGET.write_text(documented(), "utf-8")
