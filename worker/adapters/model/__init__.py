"""The model endpoint: one HTTP conversation for OpenClaw and OpenAI-compatible servers, and drivers for having none.

Start reading at ``factory.py`` (which driver a configuration means), then ``chat.py`` (one call).
"""
