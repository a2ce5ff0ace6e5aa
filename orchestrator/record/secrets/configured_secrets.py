"""The secrets of the operator's configuration; values in files are read again when they change."""

from collections.abc import Callable, Mapping

from orchestrator.ground.events import now
from orchestrator.settings.operator_secrets import OperatorSecret, load_secret
from orchestrator.state.secret import INSTANCE, Secret


class ConfiguredSecrets:
    """`by_name` has them with their present values."""

    def __init__(self, configured: Mapping[str, OperatorSecret]) -> None:
        """Reads the values. Raises: ConfigError."""
        self._configured = dict(configured)
        self.by_name: dict[str, Secret] = {}
        self.read()()

    def read(self) -> Callable[[], None]:
        """Reads all values, and returns a function that puts them in force. Raises: ConfigError."""
        time = now()
        found = {name: _secret(name, each, time) for name, each in self._configured.items()}

        def replace() -> None:
            before = self.by_name
            self.by_name = {name: _newer(before.get(name), each) for name, each in found.items()}

        return replace


def _secret(name: str, configured: OperatorSecret, time: str) -> Secret:
    """Raises: ConfigError."""
    return Secret(
        name,
        INSTANCE,
        configured.hosts,
        configured.headers,
        configured.levels,
        configured.variable,
        created_at=time,
        set_at=time,
        value=load_secret(name, configured),
        keys=configured.keys,
        configured=True,
    )


def _newer(before: Secret | None, read: Secret) -> Secret:
    """The secret that was read; the earlier one, with its time, if the value is the same."""
    return before if before is not None and before.value == read.value else read
