"""The catalog of tools: the packaged ones and those of the operator's folder."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from orchestrator.rules.tools.custom_types import (
    TYPES_FILE,
    CustomTypes,
    parse_types,
    types_of,
    with_types,
)
from orchestrator.rules.tools.manifest import Manifest
from orchestrator.rules.tools.manifest_reader import (
    SUFFIX,
    ManifestError,
    check_kind,
    claimed_name,
    read_as,
    read_bytes,
    values_of,
)
from orchestrator.rules.tools.oneshot import Oneshot
from orchestrator.rules.tools.oneshot_loader import oneshot_tool
from orchestrator.rules.tools.session_loader import load_manifest, session_tool
from orchestrator.settings.operator_files import files_in

PACKAGED = Path(__file__).with_name("manifests")


def load_tool(path: Path, types: CustomTypes | None = None) -> Manifest | Oneshot:
    """Reads a manifest's file, by default with the types of its folder. Raises: ManifestError."""
    return parse_tool(
        read_bytes(path), str(path), types_of(path.parent) if types is None else types
    )


def parse_tool(data: bytes, name: str, types: CustomTypes | None = None) -> Manifest | Oneshot:
    """Parses the bytes of a manifest of either kind. Raises: ManifestError."""
    values = values_of(data, name)
    return read_as(name, lambda: _tool(with_types(values, types or CustomTypes()), data))


def _tool(values: Mapping[str, Any], data: bytes) -> Manifest | Oneshot:
    check_kind(values)
    if "session" in values:
        return session_tool(values, data)
    return oneshot_tool(values, data)


class Catalog(Mapping[str, Manifest]):
    """Tools by name, in order. A terminal keeps the manifest with which it was opened."""

    def __init__(
        self,
        by_file: Mapping[Path, Manifest | Oneshot],
        types: Mapping[Path, CustomTypes] | None = None,
    ) -> None:
        """The mapping holds tools of sessions; `oneshots` are the others, by name.

        `types` are the types that were read last, by file.
        """
        self._by_file = dict(by_file)
        self.types = dict(types or {})
        tools = sorted(by_file.values(), key=lambda tool: tool.name)
        self._manifests = {tool.name: tool for tool in tools if isinstance(tool, Manifest)}
        self.oneshots = {tool.name: tool for tool in tools if isinstance(tool, Oneshot)}

    def __getitem__(self, name: str) -> Manifest:
        return self._manifests[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._manifests)

    def __len__(self) -> int:
        return len(self._manifests)

    def of_file(self, path: Path) -> Manifest | Oneshot | None:
        """The version of a file that was read last."""
        return self._by_file.get(path)

    def texts(self) -> dict[str, str]:
        """The operator's manifests and types that are in force, by file."""
        operators = (item for item in self._by_file.items() if item[0].parent != PACKAGED)
        texts = {str(path): manifest.source for path, manifest in operators}
        return texts | {str(path): types.text for path, types in self.types.items()}


class CatalogReading(NamedTuple):
    """A catalog, and by file the reason why its present content is not used."""

    catalog: Catalog
    problems: dict[Path, str]


def manifest_files(directory: Path) -> list[Path]:
    """The manifests of a folder. Raises: ConfigError if it can't be listed."""
    return files_in(directory, SUFFIX)


def watched_files(directory: Path) -> list[Path]:
    """The files of a folder that are read. Raises: ConfigError if it can't be listed."""
    types = directory / TYPES_FILE
    return manifest_files(directory) + ([types] if os.path.lexists(types) else [])


def kept_catalog(texts: Mapping[str, str]) -> Catalog:
    """The operator's manifests from copies of their files, without the packaged ones."""
    found, types = {}, {}
    for path in map(Path, sorted(texts, key=lambda name: not name.endswith(TYPES_FILE))):
        data = texts[str(path)].encode()
        try:
            if path.name == TYPES_FILE:
                types[path] = parse_types(data, str(path))
            else:
                found[path] = parse_tool(data, str(path), types.get(path.with_name(TYPES_FILE)))
        except ManifestError:  # this version reads manifests more strictly
            continue
    return Catalog(found, types)


def read_catalog(directory: Path | None, before: Catalog | None = None) -> CatalogReading:
    """The packaged tools and those of the folder, which replace packaged ones of the same name.

    A file that is broken now keeps its version in `before`, and so does a file that needs a type of
    a broken file of types. If a broken file was never read, the packaged tool that it may replace
    is not offered unless it was before, because it may be less strict than the operator's. Raises:
    ConfigError if the folder can't be read.
    """
    before = before or Catalog({})
    found: dict[Path, Manifest | Oneshot] = {}
    problems: dict[Path, str] = {}
    unknown: list[Path] = []
    types: dict[Path, CustomTypes] = {}
    if directory is not None:
        defined = types_of(directory)
        if defined.problem is not None:
            problems[directory / TYPES_FILE] = defined.problem
            types = before.types
        elif defined.text:
            types = {directory / TYPES_FILE: defined}
        for path in manifest_files(directory):
            manifest, problem = _read(path, defined, before)
            if manifest is None:
                unknown.append(path)
            if manifest is not None and (other := _taken(manifest, found)) is not None:
                problem = f"{path}: tool.name: {manifest.name} is the tool of {other} already"
                manifest = None
            if problem is not None:
                problems[path] = problem
            if manifest is not None:
                found[path] = manifest
    names = {manifest.name for manifest in found.values()}
    # None: an unusable file may define any tool.
    claimed = {claimed_name(path) for path in unknown}
    shipped = {
        path: manifest
        for path in manifest_files(PACKAGED)
        if (manifest := load_manifest(path)).name not in names
        and (before.of_file(path) is not None or not {manifest.name, None} & claimed)
    }
    return CatalogReading(Catalog(shipped | found, types), problems)


def _read(
    path: Path, types: CustomTypes, before: Catalog
) -> tuple[Manifest | Oneshot | None, str | None]:
    """The version of a file to use, and why it is not the present content."""
    try:
        return load_tool(path, types), None
    except ManifestError as error:
        return before.of_file(path), str(error)


def _taken(manifest: Manifest | Oneshot, found: Mapping[Path, Manifest | Oneshot]) -> Path | None:
    return next((path for path, each in found.items() if each.name == manifest.name), None)
