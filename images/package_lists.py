"""Reads the lists of Debian packages that a sandbox image has besides those of every sandbox."""

import re
import tomllib
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from images.errors import BuildError

_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,62}")
_MOST_BYTES = 64 * 1024
# As Debian Policy has it.
_Package = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9+.-]+$", max_length=100)]


class PackageList(NamedTuple):
    """`name` is that of the image, `paddock/NAME`, and of the list's file."""

    name: str
    description: str
    packages: tuple[str, ...]


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    description: Annotated[
        str, StringConstraints(max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")
    ] = ""
    packages: Annotated[list[_Package], Field(min_length=1, max_length=500)]


def read_list(path: Path) -> PackageList:
    """The list in a TOML file. Raises: BuildError, which names the file and the field."""
    name = path.name.removesuffix(".toml")
    if not _NAME.fullmatch(name):
        raise BuildError(
            f"{path}: the name may have a-z, 0-9, '_', '.' and '-', and up to 63 of them"
        )
    try:
        with path.open("rb") as file:
            text = file.read(_MOST_BYTES + 1)
        if len(text) > _MOST_BYTES:
            raise BuildError(f"{path}: is longer than {_MOST_BYTES} bytes")
        parsed = _File.model_validate(tomllib.loads(text.decode()))
    except OSError as error:
        raise BuildError(f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BuildError(f"{path}: {error}") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"]))
        raise BuildError(f"{path}: {field}: {first['msg']}") from None
    return PackageList(name, parsed.description, tuple(parsed.packages))
