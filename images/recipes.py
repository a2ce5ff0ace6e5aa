"""The contents of each image."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from images import base, site
from orchestrator.engine.base import LABEL_PROTOCOL
from sandbox_agent.protocol import PROTOCOL_VERSION

ROOT = Path(__file__).resolve().parent.parent
# The list of the Debian packages in a base made here, the same for every image.
BASE_PACKAGES = "images/sandbox/packages"
BASE_UNUSED = "images/sandbox/unused"

Files = dict[str, bytes]


class Recipe(NamedTuple):
    """The name and the contents of one image.

    `sources` are patterns relative to the repository. `prepare` makes the further files for the
    build, for an engine of the given architecture. `more_packages` are Debian packages in addition
    to those of the base's list.
    """

    name: str
    image: str
    sources: tuple[str, ...]
    labels: Mapping[str, str]
    prepare: Callable[[Files, str, base.Report], Files] | None = None
    more_packages: tuple[str, ...] = ()

    @property
    def dockerfile(self) -> str:
        """The path relative to the repository."""
        return f"images/{self.name}/Dockerfile"


SANDBOX = Recipe(
    name="sandbox",
    image="paddock/sandbox:latest",
    sources=("images/sandbox/Dockerfile", BASE_PACKAGES, BASE_UNUSED, "sandbox_agent/**/*.py"),
    labels={LABEL_PROTOCOL: str(PROTOCOL_VERSION)},
)
CONTROL_PLANE = Recipe(
    name="control-plane",
    image="paddock/control-plane:latest",
    sources=(
        "images/control-plane/Dockerfile",
        "images/control-plane/packages",
        "pyproject.toml",
        site.LOCK,
        "README.md",
        "paddock/**/*",
        "api/**/*",
        "orchestrator/**/*",
        "sandbox_agent/**/*.py",
        "images/*.py",
    ),
    labels={},
    prepare=site.install,
)
RECIPES = {recipe.name: recipe for recipe in (SANDBOX, CONTROL_PLANE)}


def context_files(root: Path = ROOT, recipe: Recipe = SANDBOX) -> Files:
    """The recipe's sources: contents by path relative to the repository."""
    found = {path for pattern in recipe.sources for path in root.glob(pattern)}
    files = {name: path.read_bytes() for name, path in _sources(root, found)}
    if recipe.more_packages:
        files[BASE_PACKAGES] = base_packages(root, recipe)
    return files


def base_packages(root: Path = ROOT, recipe: Recipe = SANDBOX) -> bytes:
    """The list of the packages in a base of the recipe's image, one per line."""
    return (root / BASE_PACKAGES).read_bytes() + b"".join(
        name.encode() + b"\n" for name in recipe.more_packages
    )


def _sources(root: Path, found: set[Path]) -> Iterator[tuple[str, Path]]:
    """Yields the sources without files that an interpreter or an editor left behind."""
    for path in sorted(found):
        relative = path.relative_to(root)
        hidden = any(part.startswith((".", "__pycache__")) for part in relative.parts)
        if path.is_file() and not hidden:
            yield relative.as_posix(), path
