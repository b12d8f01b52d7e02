"""The HTTP way in and out (CONTRACT §3.3): one small API over the same accept as all other ways."""
