"""The command line: `paddock`, and the same as `python -m api`."""

from api.cli.program import main

__all__ = ["main"]
