"""The knowledge contract: what a mounted source may say, how it is asked, how its hits are placed; no network."""
