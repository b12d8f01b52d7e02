"""The knowledge contract: what a mounted source may say, how it is asked and how it is placed in a prompt; no network."""
