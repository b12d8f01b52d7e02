"""The knowledge base as a Git repository: one bare mirror a machine, one commit a job; must not know jobs or stages."""
