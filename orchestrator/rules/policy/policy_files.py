"""Session policies: the built-in ones and the operator's files, which may change while it runs."""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from orchestrator.ground.config_error import BrokenFilesError, ConfigError
from orchestrator.ground.errors import ValidationError
from orchestrator.rules.policy import toml_lines
from orchestrator.rules.policy.policy_table import PolicyTableError, dotted, read_policy
from orchestrator.rules.policy.session_policy import BUILT_IN, SAFE_ANALYSIS, SessionPolicy
from orchestrator.settings.operator_files import table_files
from paddock.contract.words import POLICY_PATTERN


class SessionPolicies(Mapping[str, SessionPolicy]):
    """The session policies in force by name, the built-in ones first.

    A session keeps its policy even if the file changes or disappears.
    """

    def __init__(self, directory: Path | None = None) -> None:
        """Reads the files. Raises: ConfigError that names the file and the field."""
        self._policies: dict[str, SessionPolicy] = dict(BUILT_IN)
        if directory is not None:
            self.reading(directory)()

    def reading(self, directory: Path) -> Callable[[], None]:
        """Reads the files again, and returns a function that puts them in force.

        A broken file affects no others, and its last valid version stays in force. Raises:
        ConfigError if the directory can't be listed; BrokenFilesError.
        """
        found, problems = dict(BUILT_IN), {}
        for path in table_files(directory):
            try:
                found[path.stem] = read_policy_file(path)
            except ConfigError as error:
                problems[path] = str(error)
                if path.stem in self._policies:
                    found[path.stem] = self._policies[path.stem]

        def replace() -> None:
            self._policies = found

        if problems:
            raise BrokenFilesError(problems, replace)
        return replace

    def resolve(
        self, wanted: str | Mapping[str, Any] | SessionPolicy | None, field: str
    ) -> SessionPolicy:
        """The policy of that name, or of a table, which may extend a named one.

        None: the default. Raises: ValidationError that names the place in that field.
        """
        if wanted is None:
            return SAFE_ANALYSIS
        if isinstance(wanted, SessionPolicy):
            return wanted
        if isinstance(wanted, str):
            policy = self._policies.get(wanted)
            if policy is None:
                raise ValidationError(f"{field} must be one of {' '.join(self)}", field=field)
            return policy
        try:
            return read_policy(wanted, None, self)
        except PolicyTableError as error:
            place = dotted((field, *error.place))
            raise ValidationError(f"{place} {error.message}", field=place) from None

    def __getitem__(self, name: str) -> SessionPolicy:
        return self._policies[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._policies)

    def __len__(self) -> int:
        return len(self._policies)


def read_policy_file(path: Path) -> SessionPolicy:
    """The policy of a file. Raises: ConfigError that names the file, the line and the field."""
    if not re.fullmatch(POLICY_PATTERN, path.stem):
        raise ConfigError(
            f"{path}: a policy's name begins with a letter and has at most 64 characters of "
            "A-Z a-z 0-9 _ -"
        )
    if path.stem in BUILT_IN:
        raise ConfigError(f"{path}: {path.stem} is built in: give the policy another name")
    text, values = toml_lines.read_document(path)
    try:
        return read_policy(values, path.stem, BUILT_IN)
    except PolicyTableError as error:
        line = toml_lines.line_of(text, error.place)
        raise ConfigError(f"{path}:{line}: {error}") from None
