"""The operator's list of images: those of the settings, and of a file that commands edit."""

import re
from pathlib import Path
from typing import Annotated

import tomlkit
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from tomlkit.exceptions import TOMLKitError

from orchestrator.ground.config_error import ConfigError
from orchestrator.settings.operator_edits import editing, replace
from orchestrator.settings.operator_files import read_toml
from orchestrator.settings.schema_errors import place, reason
from orchestrator.settings.settings import Settings
from orchestrator.settings.values import IMAGE_PATTERN

_MOST = 256
_Image = Annotated[str, Field(pattern=f"^{IMAGE_PATTERN}$")]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)

    images: Annotated[list[_Image], Field(max_length=_MOST)] = []


def listed(settings: Settings) -> tuple[str, ...]:
    """The images that sessions may have, the default one first, then those of levels.

    Raises: ConfigError that names the file and the field.
    """
    first = (settings.image, *settings.default_images.values())
    return tuple(dict.fromkeys((*first, *settings.images, *read_images(settings.images_path))))


def read_images(path: Path) -> tuple[str, ...]:
    """The file's images; none if there is no file. Raises: ConfigError."""
    if not path.exists():
        return ()
    try:
        return tuple(_Table.model_validate(read_toml(path)).images)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, place(first["loc"])))
        raise ConfigError(f"{path}: {where} {reason(first['type'], first['msg'])}") from None


def check_name(name: str) -> str:
    """Returns it. Raises: ConfigError if no image can have this name."""
    if re.fullmatch(IMAGE_PATTERN, name) is None:
        raise ConfigError(f"{name!r} is not an image name")
    return name


def add_image(path: Path, name: str) -> bool:
    """Adds an image to the file; returns whether it was not there before. Raises: ConfigError."""
    with editing(path):
        before = read_images(path)
        if name not in before:
            _write(path, (*before, name))
        return name not in before


def remove_image(path: Path, name: str) -> bool:
    """Removes an image from the file; returns whether it was there. Raises: ConfigError."""
    with editing(path):
        before = read_images(path)
        if name in before:
            _write(path, tuple(each for each in before if each != name))
        return name in before


def _write(path: Path, names: tuple[str, ...]) -> None:
    """Replaces the list and keeps the file's comments. Raises: ConfigError, OSError."""
    if len(names) > _MOST:
        raise ConfigError(f"{path}: may have {_MOST} images at most")
    try:
        document = tomlkit.parse(path.read_text(encoding="utf-8")) if path.exists() else None
    except TOMLKitError as error:
        raise ConfigError(f"{path}: can't be edited: {error}: edit it by hand") from None
    document = tomlkit.document() if document is None else document
    items = tomlkit.array().multiline(True)
    items.extend(names)
    document["images"] = items
    replace(path, tomlkit.dumps(document))
