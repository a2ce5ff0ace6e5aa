"""What configuration that can't be used is answered with."""

from collections.abc import Callable, Mapping
from pathlib import Path


class ConfigError(Exception):
    """Configuration that can't be used: one line that names the setting or the file."""


class BrokenFilesError(ConfigError):
    """Files that can't be used, by file why; `replace` puts what holds without them in force."""

    def __init__(self, problems: Mapping[Path, str], replace: Callable[[], None]) -> None:
        super().__init__("; ".join(problems.values()))
        self.problems = dict(problems)
        self.replace = replace
