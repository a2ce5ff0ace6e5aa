"""Reads the lists of packages that a sandbox image has besides those of every sandbox."""

import re
import tomllib
from pathlib import Path
from typing import Annotated, NamedTuple, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)

from images.errors import BuildError

_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,62}")
_MOST_BYTES = 64 * 1024
# As Debian Policy has it.
_Package = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9+.-]+$", max_length=100)]


# Exact versions, so that a build now and a build later give the same program.
_Npm = Annotated[
    str,
    StringConstraints(
        pattern=r"^(@[a-z0-9][a-z0-9._-]*/)?[a-z0-9][a-z0-9._-]*@[0-9][0-9A-Za-z.+-]*$",
        max_length=200,
    ),
]
_Pip = Annotated[
    str,
    StringConstraints(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*==[0-9][0-9A-Za-z.+!]*$", max_length=200
    ),
]
# Lists that others may extend are here.
_LISTS = Path(__file__).with_name("sandbox")
_MOST_LOCK_BYTES = 4 * 1024 * 1024


class PackageList(NamedTuple):
    """`name` is that of the image, `paddock/NAME`, and of the list's file.

    `packages` are Debian's. `npm` and `pip` are programs of these registries. `lock` has the exact
    versions and digests of all that those of `pip` need, as pip reads it; None: any versions.
    """

    name: str
    description: str
    packages: tuple[str, ...]
    npm: tuple[str, ...] = ()
    pip: tuple[str, ...] = ()
    lock: str | None = None


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    description: Annotated[
        str, StringConstraints(max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")
    ] = ""
    extends: Annotated[str, StringConstraints(pattern=f"^{_NAME.pattern}$")] | None = None
    packages: Annotated[list[_Package], Field(max_length=500)] = []
    npm: Annotated[list[_Npm], Field(max_length=50)] = []
    pip: Annotated[list[_Pip], Field(max_length=50)] = []

    @model_validator(mode="after")
    def _check_any(self) -> Self:
        if not (self.packages or self.npm or self.pip):
            raise ValueError("give packages, npm or pip")
        return self


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
        raise BuildError(f"{path}: {field}: {first['msg']}".replace(": : ", ": ")) from None
    return _whole(path, name, parsed)


def _whole(path: Path, name: str, parsed: _File) -> PackageList:
    """The list with what it extends, which comes first. Raises: BuildError."""
    packages, npm, pip = tuple(parsed.packages), tuple(parsed.npm), tuple(parsed.pip)
    if parsed.extends is not None:
        below = _LISTS / f"{parsed.extends}.toml"
        if not below.is_file():
            raise BuildError(f"{path}: extends: Paddock has no list {parsed.extends}")
        if below.resolve() == path.resolve():
            raise BuildError(f"{path}: extends: a list can't extend itself")
        more = read_list(below)
        packages, npm, pip = more.packages + packages, more.npm + npm, more.pip + pip
    return PackageList(name, parsed.description, packages, npm, pip, _lock(path) if pip else None)


def _lock(path: Path) -> str | None:
    """The text of the file beside the list, named `NAME.lock`. Raises: BuildError."""
    beside = path.with_suffix(".lock")
    try:
        with beside.open("rb") as file:
            text = file.read(_MOST_LOCK_BYTES + 1)
        if len(text) > _MOST_LOCK_BYTES:
            raise BuildError(f"{beside}: is longer than {_MOST_LOCK_BYTES} bytes")
        return text.decode()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise BuildError(f"{beside}: {error}") from None
