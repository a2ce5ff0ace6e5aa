"""Where `paddock keys` finds the keys: the keys file, or the database of a node's cluster."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from orchestrator.cluster.postgres.key_table import KeyTable
    from orchestrator.rules.access.keys import Principal

T = TypeVar("T")


class KeyPlace(Protocol):
    """Reads and changes keys; `name` says where they are."""

    name: str

    def list(self) -> "list[Principal]":
        """All keys, without this machine's admin key."""

    def add(self, key: "Principal") -> str:
        """Adds a key and returns its secret."""

    def rotate(self, name: str, overlap: timedelta) -> str:
        """Gives a key another secret and returns it; the old one is valid for the overlap."""

    def remove(self, name: str) -> None:
        """Removes a key."""


def key_place() -> KeyPlace:
    """Where this machine's settings have the keys. Raises: ConfigError."""
    from orchestrator.settings.cluster_access import in_cluster
    from orchestrator.settings.settings import load_settings

    # A machine that only administers a cluster is no node, and has no other settings of one.
    return ClusterKeys() if in_cluster() else FileKeys(load_settings().keys_path)


class FileKeys:
    """The keys file."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._path = path

    def list(self) -> "list[Principal]":
        """As `KeyPlace.list`."""
        from orchestrator.rules.access.keys_file import list_keys

        return list_keys(self._path)

    def add(self, key: "Principal") -> str:
        """As `KeyPlace.add`."""
        from orchestrator.rules.access.keys_file import add_key

        return add_key(self._path, key)

    def rotate(self, name: str, overlap: timedelta) -> str:
        """As `KeyPlace.rotate`."""
        from orchestrator.rules.access.keys_file import rotate_key

        return rotate_key(self._path, name, overlap)

    def remove(self, name: str) -> None:
        """As `KeyPlace.remove`."""
        from orchestrator.rules.access.keys_file import remove_key

        remove_key(self._path, name)


class ClusterKeys:
    """The database of the cluster."""

    name = "the cluster's database"

    def list(self) -> "list[Principal]":
        """As `KeyPlace.list`."""
        return self._ask(lambda table: table.list())

    def add(self, key: "Principal") -> str:
        """As `KeyPlace.add`."""
        return self._ask(lambda table: table.add(key))

    def rotate(self, name: str, overlap: timedelta) -> str:
        """As `KeyPlace.rotate`."""
        return self._ask(lambda table: table.rotate(name, overlap))

    def remove(self, name: str) -> None:
        """As `KeyPlace.remove`."""
        self._ask(lambda table: table.remove(name))

    def _ask(self, work: "Callable[[KeyTable], Awaitable[T]]") -> T:
        from api.cli.cluster_database import ask
        from orchestrator.cluster.postgres.key_table import KeyTable

        return ask(lambda database: work(KeyTable(database)), "asking the database")
