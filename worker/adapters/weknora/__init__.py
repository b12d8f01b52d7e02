"""WeKnora and the local files that stand in for it; must not decide what follows a search."""
