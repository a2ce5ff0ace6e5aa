"""The tools that there are: those that are shipped, and those of the operator's folder."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from orchestrator.config import ConfigError
from orchestrator.tools.loader import SUFFIX, ManifestError, load_manifest
from orchestrator.tools.manifest import Manifest

PACKAGED = Path(__file__).with_name("manifests")


class Catalog(Mapping[str, Manifest]):
    """Tools by name, in order. A terminal keeps the manifest that it was opened with."""

    def __init__(self, by_file: Mapping[Path, Manifest]) -> None:
        self._by_file = dict(by_file)
        manifests = {manifest.name: manifest for manifest in by_file.values()}
        self._manifests = dict(sorted(manifests.items()))

    def __getitem__(self, name: str) -> Manifest:
        return self._manifests[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._manifests)

    def __len__(self) -> int:
        return len(self._manifests)

    def of_file(self, path: Path) -> Manifest | None:
        """What was read last of a file."""
        return self._by_file.get(path)


class Reading(NamedTuple):
    """A catalog, and by file why its present content is not in it."""

    catalog: Catalog
    problems: dict[Path, str]


def manifest_files(directory: Path) -> list[Path]:
    """The manifests of a folder."""
    return sorted(path for path in directory.glob(f"*{SUFFIX}") if path.is_file())


def read_catalog(directory: Path | None, before: Catalog | None = None) -> Reading:
    """The shipped tools and those of the folder, which replace shipped ones of their name.

    For a file that is broken now, what was read of it `before` stays.
    Raises: ConfigError when the folder can't be read.
    """
    found: dict[Path, Manifest] = {}
    problems: dict[Path, str] = {}
    if directory is not None:
        if not directory.is_dir():
            raise ConfigError(f"{directory}: is not a directory")
        for path in manifest_files(directory):
            manifest, problem = _read(path, before)
            if manifest is not None and (other := _taken(manifest, found)) is not None:
                problem = f"{path}: tool.name: {manifest.name} is the tool of {other} already"
                manifest = None
            if problem is not None:
                problems[path] = problem
            if manifest is not None:
                found[path] = manifest
    names = {manifest.name for manifest in found.values()}
    shipped = {path: load_manifest(path) for path in manifest_files(PACKAGED)}
    kept = {path: each for path, each in shipped.items() if each.name not in names}
    return Reading(Catalog(kept | found), problems)


def _read(path: Path, before: Catalog | None) -> tuple[Manifest | None, str | None]:
    """What is to be in force of a file, and why that is not its present content."""
    try:
        return load_manifest(path), None
    except ManifestError as error:
        return None if before is None else before.of_file(path), str(error)


def _taken(manifest: Manifest, found: Mapping[Path, Manifest]) -> Path | None:
    return next((path for path, each in found.items() if each.name == manifest.name), None)
