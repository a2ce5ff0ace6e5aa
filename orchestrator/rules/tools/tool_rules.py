"""The operator's current rules for tools: manifests, scope and Cedar policies.

Copies of their last valid versions are kept: a start that finds a broken file uses its copy, as if
the control plane had kept running.
"""

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from orchestrator.ground.config_error import BrokenFilesError
from orchestrator.ground.store.directories import write_file
from orchestrator.rules.tools.catalog import kept_catalog, read_catalog, watched_files
from orchestrator.rules.tools.cedar import Policies, kept_policies, load_policies, policy_files
from orchestrator.rules.tools.scope import NO_SCOPE, load_scope
from orchestrator.settings.operator_files import files_or_folder
from orchestrator.settings.settings import Settings

log = logging.getLogger(__name__)

_MANIFESTS = "manifests"
_POLICIES = "policies"


class LastGood:
    """Copies of the last valid versions, in a folder of the state directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def load(self, kind: str) -> dict[str, str]:
        """Texts by their original paths; empty if there is no copy."""
        try:
            texts = json.loads(self._file(kind).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return {}
        if not isinstance(texts, dict) or not all(isinstance(t, str) for t in texts.values()):
            return {}
        return texts

    def save(self, kind: str, texts: Mapping[str, str]) -> None:
        """Replaces all copies at once. A failure matters only if a later start needs them."""
        if self.load(kind) == texts:
            return
        try:
            self._directory.mkdir(mode=0o700, exist_ok=True)
            write_file(self._file(kind), json.dumps(dict(texts)).encode())
        except OSError as error:
            log.warning("could not save a copy of the %s: %s", kind, error)

    def _file(self, kind: str) -> Path:
        return self._directory / f"{kind}.json"


class RuleFiles(NamedTuple):
    """Files that are read together; `read` returns a function that activates them.

    `read` raises ConfigError. `directory` is the folder in which they appear and disappear; None
    for a single, fixed file. If it can't be listed, it is the only entry of `files`.
    """

    directory: Path | None
    files: Callable[[], list[Path]]
    read: Callable[[], Callable[[], None]]


class ToolRules:
    """The rules in force; each kind is replaced as a whole when its files change.

    `policies` is None if no policy folder is configured.
    """

    def __init__(self, settings: Settings, last_good: LastGood | None = None) -> None:
        """Does not read the operator's files: each entry of `files` does that.

        Until then, and if they can't be read, the rules are those of `last_good`. Without them,
        there are no tools and no targets, and the policies deny everything.
        """
        self._settings = settings
        self._last_good = last_good
        self._listeners: list[Callable[[], None]] = []
        self.catalog = read_catalog(None).catalog
        self.scope = NO_SCOPE
        self.policies: Policies | None = None
        if settings.tools_dir is not None:
            self.catalog = kept_catalog(self._kept(_MANIFESTS))
        if settings.cedar_dir is not None:
            self.policies = kept_policies(self._kept(_POLICIES).get(str(settings.cedar_dir)))

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Calls `listener` when rules were replaced; returns a function that unsubscribes it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def _changed(self) -> None:
        for listener in list(self._listeners):
            listener()

    def files(self) -> Iterator[RuleFiles]:
        """The configured files and how to read them."""
        settings = self._settings
        if (tools := settings.tools_dir) is not None:
            manifests = partial(files_or_folder, watched_files, tools)
            yield RuleFiles(tools, manifests, lambda: self._manifests(tools))
        if (scope := settings.scope_file) is not None:
            yield RuleFiles(None, lambda: [scope], lambda: self._scope(scope))
        if (cedar := settings.cedar_dir) is not None:
            policies = partial(files_or_folder, policy_files, cedar)
            yield RuleFiles(cedar, policies, lambda: self._policies(cedar))

    def _manifests(self, directory: Path) -> Callable[[], None]:
        """A broken manifest affects no others, and its last valid version stays in force."""
        catalog, problems = read_catalog(directory, self.catalog)
        self._keep(_MANIFESTS, catalog.texts())

        def replace() -> None:
            self.catalog = catalog
            self._changed()

        if problems:
            raise BrokenFilesError(problems, replace)
        return replace

    def _scope(self, path: Path) -> Callable[[], None]:
        """A broken scope file puts nothing in scope."""
        scope = load_scope(path)

        def replace() -> None:
            self.scope = scope
            self._changed()

        if scope.problem is not None:
            raise BrokenFilesError({path: scope.problem}, replace)
        return replace

    def _policies(self, directory: Path) -> Callable[[], None]:
        """Policies work together: one broken file leaves all of them unchanged."""
        policies = load_policies(directory)
        self._keep(_POLICIES, {str(directory): policies.document})

        def replace() -> None:
            self.policies = policies
            self._changed()

        return replace

    def _kept(self, kind: str) -> dict[str, str]:
        return {} if self._last_good is None else self._last_good.load(kind)

    def _keep(self, kind: str, texts: Mapping[str, str]) -> None:
        if self._last_good is not None:
            self._last_good.save(kind, texts)
