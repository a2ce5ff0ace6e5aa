"""The command line `paddock`, also run by `python -m paddock`."""

from paddock.cli.program import main

__all__ = ["main"]
