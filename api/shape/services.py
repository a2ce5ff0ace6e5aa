"""The services that operations name by type in their parameters."""

from collections.abc import Iterable, Mapping
from typing import Any, get_type_hints

from api.shape.operation import Operation


class Services:
    """The services of an instance by their types, and which of them each operation takes.

    They are looked up once, before the first request: `of_operation` has the arguments of each
    operation's function by the operation's id, `of_stop` those of its `stops`.
    """

    def __init__(
        self, offered: Iterable[tuple[type[Any], Any]], operations: Iterable[Operation]
    ) -> None:
        """Raises: TypeError if two are of one type, or an operation names one that is not there."""
        self._offered: dict[type[Any], Any] = {}
        for kind, service in offered:
            if kind in self._offered:
                raise TypeError(f"two services are of type {kind.__name__}")
            self._offered[kind] = service
        self.of_operation: dict[str, Mapping[str, Any]] = {}
        self.of_stop: dict[str, Mapping[str, Any]] = {}
        for operation in operations:
            self.of_operation[operation.id] = self._found(operation.id, operation.services)
            self.of_stop[operation.id] = self._found(operation.id, operation.stop_services)

    @classmethod
    def of(cls, instance: object, operations: Iterable[Operation]) -> "Services":
        """The services that the class of an instance declares, each under its declared type."""
        declared = get_type_hints(type(instance)).items()
        offered = [
            (kind, getattr(instance, name)) for name, kind in declared if hasattr(instance, name)
        ]
        return cls(offered, operations)

    def _found(self, operation: str, wanted: Mapping[str, type[Any]]) -> Mapping[str, Any]:
        for name, kind in wanted.items():
            if kind not in self._offered:
                missing = getattr(kind, "__name__", kind)
                raise TypeError(f"operation {operation}: {name}: there is no service {missing}")
        return {name: self._offered[kind] for name, kind in wanted.items()}
