"""Reads manifests of both kinds, with the types that the operator defines in the same folder."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orchestrator.rules.tools.custom_types import CustomTypes, types_of, with_types
from orchestrator.rules.tools.loader import check_kind, read_as, read_bytes, session_tool, values_of
from orchestrator.rules.tools.manifest import Manifest
from orchestrator.rules.tools.oneshot import Oneshot
from orchestrator.rules.tools.oneshot_loader import build
from orchestrator.rules.tools.oneshot_tables import OneshotTable


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
    return build(OneshotTable.model_validate(values), data)
