"""Text of others inside a prompt: delimited by a marker nobody could know, disarmed where it imitates the prompt.

Must not shorten or judge it.
"""

from __future__ import annotations

import re

MARKER = "KBW-DATA"

_MARKER_WORD = re.compile(r"KBW[\s_\-‐-―－]*DATA", re.IGNORECASE)
# Control characters (line breaks and tabs aside), bidi controls and the invisible tag characters used to smuggle text.
_INVISIBLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f]")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
# Role and turn marks of the common chat templates: ChatML, Llama 2/3, Mistral, Gemma, DeepSeek, and thinking tags.
_TAGS = (
    re.compile(r"<(\s*[|｜][^<>\n]{0,60}[|｜]\s*)>"),
    re.compile(r"<(<\s*+(?:/\s*+)?SYS\s*>)>", re.IGNORECASE),
    re.compile(r"\[(\s*+(?:/\s*+)?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS)\s*)\]", re.IGNORECASE),
    re.compile(
        r"<(\s*+(?:/\s*+)?(?:s|bos|eos|system|assistant|tool_call|tool_response|function_calls?|start_of_turn"
        r"|end_of_turn|think|thinking|thought|reasoning)\s*)>",
        re.IGNORECASE,
    ),
)
_BROKEN_PAIR = {"<": ("‹", "›"), "[": ("［", "］")}


def disarm(text: str, nonce: str) -> str:
    """``text`` with our marker words and chat-template tags broken so that a reader sees it: ``‹|im_start|›``."""
    text = _LONE_SURROGATE.sub("\ufffd", _INVISIBLE.sub("", text))
    text = _MARKER_WORD.sub("KBW·DATA", text)
    if nonce:
        text = text.replace(nonce, "·")
    for tag in _TAGS:
        text = tag.sub(_break, text)
    return text


def _break(match: re.Match[str]) -> str:
    left, right = _BROKEN_PAIR[match.group()[0]]
    return left + match.group(1).replace("<", "‹").replace(">", "›") + right


def begin_mark(nonce: str) -> str:
    """How the first line of every data block of this call starts."""
    return f"[[[{MARKER} {nonce} BEGIN"


def end_mark(nonce: str) -> str:
    """The last line of every data block of this call."""
    return f"[[[{MARKER} {nonce} END]]]"


def block(label: str, text: str, nonce: str) -> str:
    """``text`` as one data block; ``label`` is ours, never foreign text."""
    return f"{begin_mark(nonce)} {label}]]]\n{disarm(text, nonce)}\n{end_mark(nonce)}"
