"""The client's own texts of a snapshot, as they are changed. Pure."""

from collections.abc import Mapping

from pydantic import TypeAdapter
from pydantic import ValidationError as Invalid

from orchestrator.ground.errors import ValidationError
from paddock.contract.fields import Metadata

_LIMITS: TypeAdapter[dict[str, str]] = TypeAdapter(Metadata)


def changed(texts: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    """The texts with those changes: None removes a text, and the others stay.

    Raises: ValidationError if they are too many or too long together.
    """
    merged = {**texts, **changes}
    found = {name: text for name, text in merged.items() if text is not None}
    try:
        return _LIMITS.validate_python(found)
    except Invalid as error:
        told = error.errors(include_url=False, include_input=False)[0]["msg"]
        raise ValidationError(f"metadata, with what stays: {told}", field="metadata") from None
