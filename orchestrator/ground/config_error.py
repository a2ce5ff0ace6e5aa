"""Errors of unusable configuration."""

from collections.abc import Callable, Mapping
from pathlib import Path


class ConfigError(Exception):
    """Configuration that can't be used.

    The message is one line that names the setting or the file.
    """


class BrokenFilesError(ConfigError):
    """Unusable files with reasons; `replace` activates the configuration without them."""

    def __init__(self, problems: Mapping[Path, str], replace: Callable[[], None]) -> None:
        super().__init__("; ".join(problems.values()))
        self.problems = dict(problems)
        self.replace = replace
