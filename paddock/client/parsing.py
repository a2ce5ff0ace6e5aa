"""Parses the control plane's answers into the contract's models. No I/O."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from pydantic import ValidationError

from paddock.client.errors import NotPaddockError, OldServerError
from paddock.contract.base import READER, Model

M = TypeVar("M", bound=Model)


def read(model: type[M], told: Any) -> M:
    """The model of a JSON value, with times as timezone-aware `datetime`s.

    Unknown members and values of a newer server are kept; `raw` has these members. Raises:
    OldServerError if a member is missing or has an impossible type.
    """
    try:
        return model.model_validate(told, extra="allow", context=READER)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    where = ".".join([model.__name__, *map(str, first["loc"])])
    if first["type"] == "missing":
        raise OldServerError(
            f"the control plane does not tell {where}: it is older than this client"
        )
    raise OldServerError(f"the control plane tells {where} in another form than this client knows")


def read_items(model: type[M], page: Mapping[str, Any]) -> tuple[M, ...]:
    """The models of one page of a list. Raises: NotPaddockError, OldServerError."""
    return tuple(read(model, item) for item in items(page))


def items(page: Mapping[str, Any]) -> Sequence[dict[str, Any]]:
    """The objects of one page of a list. Raises: NotPaddockError."""
    found = page.get("items")
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise NotPaddockError("the server's list is not one of Paddock's")
    return found
