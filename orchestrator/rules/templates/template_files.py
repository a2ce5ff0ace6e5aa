"""The templates of the operator's files, which may change while the control plane runs."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from orchestrator.ground.config_error import BrokenFilesError, ConfigError
from orchestrator.ground.errors import NotFoundError, ValidationError
from orchestrator.rules.templates.template import Template
from orchestrator.rules.templates.template_file import read_template_file
from orchestrator.settings.operator_files import table_files


class TemplateFiles(Mapping[str, Template]):
    """The templates in force by name."""

    def __init__(self, directory: Path | None = None) -> None:
        """Reads the files. Raises: ConfigError that names the file and the field."""
        self._templates: dict[str, Template] = {}
        self._subscribers: list[Callable[[], None]] = []
        if directory is not None:
            self.reading(directory)()

    def on_change(self, subscriber: Callable[[], None]) -> None:
        """Subscribes to replacements."""
        self._subscribers.append(subscriber)

    def reading(self, directory: Path) -> Callable[[], None]:
        """Reads the files again, and returns a function that puts them in force.

        A broken file affects no others, and its last valid version stays in force. Raises:
        ConfigError if the directory can't be listed; BrokenFilesError.
        """
        found: dict[str, Template] = {}
        problems: dict[Path, str] = {}
        for path in table_files(directory):
            try:
                found[path.stem] = read_template_file(path)
            except ConfigError as error:
                problems[path] = str(error)
                if path.stem in self._templates:
                    found[path.stem] = self._templates[path.stem]

        def replace() -> None:
            self._templates = found
            for subscriber in self._subscribers:
                subscriber()

        if problems:
            raise BrokenFilesError(problems, replace)
        return replace

    def asked(self, name: str) -> Template:
        """The template that a new session asks for. Raises: ValidationError."""
        try:
            return self[name]
        except KeyError:
            known = ", ".join(self) or "none"
            raise ValidationError(
                f"template {name}: there is no such template; the operator has {known}",
                field="template",
            ) from None

    def found(self, name: str) -> Template:
        """The template of that name. Raises: NotFoundError."""
        try:
            return self[name]
        except KeyError:
            raise NotFoundError(f"there is no template {name}") from None

    def __getitem__(self, name: str) -> Template:
        return self._templates[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._templates)

    def __len__(self) -> int:
        return len(self._templates)
