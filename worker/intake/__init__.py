"""The ways in: each turns what it finds into a document and hands it to ``tasks.accept``."""
