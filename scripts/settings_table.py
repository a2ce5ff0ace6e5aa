"""The table of the settings."""

from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import annotated_types
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from orchestrator.settings.settings import Settings
from scripts.markdown import table

_TYPES = {str: "text", Path: "path", SecretStr: "text", int: "integer", float: "number"}


def settings() -> str:
    """A table of all settings: variable, type, default and meaning."""
    rows = [
        (f"`PADDOCK_{name.upper()}`", _type(field), _default(field), field.description or "")
        for name, field in Settings.model_fields.items()
    ]
    return table(("variable", "type", "default", "meaning"), rows)


def _type(field: FieldInfo) -> str:
    annotation: Any = field.annotation
    kinds = [kind for kind in get_args(annotation) if kind is not type(None)]
    if get_origin(annotation) is Literal:
        return " or ".join(f"`{value}`" for value in kinds)
    if get_origin(annotation) is tuple:
        return "list"
    if get_origin(annotation) is dict:
        return "table"
    kind = kinds[0] if kinds else annotation
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    if get_origin(kind) is Literal:
        return " or ".join(f"`{value}`" for value in get_args(kind))
    if get_origin(kind) is dict or (isinstance(kind, type) and issubclass(kind, BaseModel)):
        return "table"
    if kind is bool:
        return "`true` or `false`"
    return _TYPES[kind] + _bounds(field)


def _bounds(field: FieldInfo) -> str:
    least = most = ""
    for bound in field.metadata:
        if isinstance(bound, annotated_types.Ge):
            least = f"from {bound.ge}"
        elif isinstance(bound, annotated_types.Gt):
            least = f"over {bound.gt}"
        elif isinstance(bound, annotated_types.Le):
            most = f"to {bound.le}"
    return "".join(f" {part}" for part in (least, most) if part)


def _default(field: FieldInfo) -> str:
    default = field.default
    if field.default_factory is not None or default in (None, (), {}):
        return "unset"
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"
