"""Reports of nodes as JSON, for the database and for `GET /api/node`. Pure."""

from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from typing import Any

from orchestrator.cluster.base import Amounts, NodeReport

_AMOUNTS = tuple(each.name for each in fields(Amounts))
_PLAIN = tuple(
    each.name for each in fields(NodeReport) if each.name not in ("capacity", "used", "state")
)


def stored(report: NodeReport) -> dict[str, Any]:
    """The report's members as JSON."""
    return {**asdict(report), "images": list(report.images), "levels": list(report.levels)}


def read(members: Mapping[str, Any], state: str) -> NodeReport:
    """The report with the cluster's word on the state; members of later versions are left out."""
    report = NodeReport(
        state=state,
        capacity=_amounts(members["capacity"]),
        used=_amounts(members["used"]),
        **{name: members[name] for name in _PLAIN if name in members},
    )
    return replace(report, images=tuple(report.images), levels=tuple(report.levels))


def _amounts(members: Mapping[str, Any]) -> Amounts:
    return Amounts(**{name: members[name] for name in _AMOUNTS if name in members})
