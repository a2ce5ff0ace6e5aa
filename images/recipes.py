"""The contents of each image."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from images import base, guard_stage, site
from images.errors import BuildError
from images.package_lists import PackageList, read_list
from images.programs import NO_PROGRAMS, Programs
from images.releases import Release
from orchestrator.host.engine.base import LABEL_IMAGE
from orchestrator.host.engine.image_names import familiar

ROOT = Path(__file__).resolve().parent.parent
# The lists of the Debian packages in a base made here, and of the files that are left out.
BASE_PACKAGES = "images/sandbox/packages"
BASE_UNUSED = "images/sandbox/unused"
# The list of the packages in a newer base made here.
NEWER_PACKAGES = "images/control-plane/packages"
# Sandbox images with more programs; an operator's own list can be anywhere.
LISTS = "images/sandbox"

Files = dict[str, bytes]


class Recipe(NamedTuple):
    """The name and the contents of one image.

    `sources` are patterns relative to the repository. `prepare` makes the further files for the
    build, for an engine of the given architecture and a base of the given release. `suite` is a
    Debian that the image prefers to the sandbox's base. `more_packages` are Debian packages in
    addition to those of the base, `programs` are those of npm and PyPI.
    """

    name: str
    image: str
    description: str
    dockerfile: str
    sources: tuple[str, ...]
    labels: Mapping[str, str]
    prepare: Callable[[Files, str, Release, base.Report], Files] | None = None
    suite: str | None = None
    more_packages: tuple[str, ...] = ()
    programs: Programs = NO_PROGRAMS


SANDBOX = Recipe(
    name="sandbox",
    image="paddock/sandbox:latest",
    description="Sandboxes: the programs of the permission levels, git and Python.",
    dockerfile="images/sandbox/Dockerfile",
    sources=(
        "images/sandbox/Dockerfile",
        BASE_PACKAGES,
        BASE_UNUSED,
        *guard_stage.PATTERNS,
    ),
    labels={LABEL_IMAGE: "sandbox"},
)
CONTROL_PLANE = Recipe(
    name="control-plane",
    image="paddock/control-plane:latest",
    description="The control plane, for Compose.",
    dockerfile="images/control-plane/Dockerfile",
    sources=(
        "images/control-plane/Dockerfile",
        NEWER_PACKAGES,
        "pyproject.toml",
        site.LOCK,
        "README.md",
        "paddock/**/*",
        "api/**/*",
        "gateway/**/*",
        "orchestrator/**/*",
        "sandbox_agent/**/*.py",
        "sandbox_agent/**/*.conf",
        *guard_stage.PATTERNS,
        "sandbox_agent/**/*.toml",
        "images/*.py",
    ),
    labels={},
    prepare=site.install,
    # The newest supported Python. Levels name files of the sandboxes' release, so those stay on it.
    suite="trixie",
)


def recipes(root: Path = ROOT, default_image: str = SANDBOX.image) -> dict[str, Recipe]:
    """All images that can be built without an operator's own list, by name.

    `default_image` is the value of `PADDOCK_IMAGE`. If it is in the repository of a recipe's image,
    it replaces the name of that image; an image in another repository belongs to no recipe.
    """
    lists = (_with_packages(read_list(path)) for path in sorted((root / LISTS).glob("*.toml")))
    found = {recipe.name: recipe for recipe in (SANDBOX, *lists, CONTROL_PLANE)}
    default = _repository(default_image)
    for name, recipe in found.items():
        if LABEL_IMAGE in recipe.labels and _repository(recipe.image) == default:
            found[name] = recipe._replace(image=default_image)
    return found


def default_recipe(default_image: str) -> Recipe:
    """The recipe of `PADDOCK_IMAGE`; the sandbox's if that is not an image of Paddock's own."""
    known = recipes(default_image=default_image).values()
    ours = (recipe for recipe in known if LABEL_IMAGE in recipe.labels)
    return next((recipe for recipe in ours if recipe.image == default_image), SANDBOX)


def find_recipe(name: str, root: Path = ROOT, default_image: str = SANDBOX.image) -> Recipe:
    """The recipe of that name, or the one that a list of packages (a path to `*.toml`) gives.

    Raises: BuildError, which names the field, for a faulty list; LookupError if there is none.
    """
    known = recipes(root, default_image)
    if not name.endswith(".toml"):
        return known[name]
    listed = read_list(Path(name))
    if listed.name in known and Path(name).resolve().parent != (root / LISTS).resolve():
        raise BuildError(f"{name}: {listed.name} is an image of Paddock's own: rename the file")
    return _with_packages(listed)


def _with_packages(listed: PackageList) -> Recipe:
    """A sandbox image with the packages of a list."""
    return SANDBOX._replace(
        name=listed.name,
        image=f"paddock/{listed.name}:latest",
        description=listed.description,
        more_packages=listed.packages,
        programs=Programs(listed.npm, listed.pip, listed.lock),
    )


def _repository(image: str) -> str:
    """The image's name without its tag."""
    return familiar(image).rpartition(":")[0]


def context_files(root: Path = ROOT, recipe: Recipe = SANDBOX) -> Files:
    """The recipe's sources: contents by path relative to the repository."""
    found = {path for pattern in recipe.sources for path in root.glob(pattern)}
    files = {name: path.read_bytes() for name, path in _sources(root, found)}
    if recipe.more_packages:
        files[BASE_PACKAGES] += "".join(f"{name}\n" for name in recipe.more_packages).encode()
    return files | recipe.programs.files() if recipe.dockerfile == SANDBOX.dockerfile else files


def _sources(root: Path, found: set[Path]) -> Iterator[tuple[str, Path]]:
    """Yields the sources without files that an interpreter or an editor left behind."""
    for path in sorted(found):
        relative = path.relative_to(root)
        hidden = any(part.startswith((".", "__pycache__")) for part in relative.parts)
        if path.is_file() and not hidden:
            yield relative.as_posix(), path
