"""What the operator's files say of tools now: manifests, scope and Cedar policies."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from orchestrator.config import BrokenFilesError, Settings
from orchestrator.tools.catalog import Catalog, manifest_files, read_catalog
from orchestrator.tools.cedar import Policies, load_policies, policy_files
from orchestrator.tools.scope import NO_SCOPE, Scope, load_scope


class RuleFiles(NamedTuple):
    """Files of one directory; `read` returns what puts them in force. Raises: ConfigError."""

    directory: Path
    files: Callable[[], list[Path]]
    read: Callable[[], Callable[[], None]]


class ToolRules:
    """The rules in force; each is replaced as a whole when its files change.

    `policies` are None where no folder of them is configured.
    """

    def __init__(self, settings: Settings) -> None:
        """Reads nothing of the operator's yet: that is for each of `files`."""
        self._settings = settings
        self.catalog: Catalog = read_catalog(None).catalog
        self.scope: Scope = NO_SCOPE
        self.policies: Policies | None = None

    def files(self) -> Iterator[RuleFiles]:
        """What is configured, and how it is read."""
        settings = self._settings
        if (tools := settings.tools_dir) is not None:
            yield RuleFiles(tools, lambda: manifest_files(tools), lambda: self._manifests(tools))
        if (scope := settings.scope_file) is not None:
            yield RuleFiles(scope.parent, lambda: [scope], lambda: self._scope(scope))
        if (cedar := settings.cedar_dir) is not None:
            yield RuleFiles(cedar, lambda: policy_files(cedar), lambda: self._policies(cedar))

    def _manifests(self, directory: Path) -> Callable[[], None]:
        """A broken manifest leaves the others, and what was read last of it, in force."""
        catalog, problems = read_catalog(directory, self.catalog)

        def replace() -> None:
            self.catalog = catalog

        if problems:
            raise BrokenFilesError(problems, replace)
        return replace

    def _scope(self, path: Path) -> Callable[[], None]:
        """A broken scope file puts nothing in scope."""
        scope = load_scope(path)

        def replace() -> None:
            self.scope = scope

        if scope.problem is not None:
            raise BrokenFilesError({path: scope.problem}, replace)
        return replace

    def _policies(self, directory: Path) -> Callable[[], None]:
        """Policies work together: a broken file leaves all as they were."""
        policies = load_policies(directory)

        def replace() -> None:
            self.policies = policies

        return replace
