"""The command line: `paddock`, and the same as `python -m paddock`."""

from paddock.cli.program import main

__all__ = ["main"]
