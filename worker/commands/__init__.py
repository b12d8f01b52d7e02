"""The arguments of groups of commands; ``worker/cli.py`` puts them together, ``worker/ops`` does the work."""
