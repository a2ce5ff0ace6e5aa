"""What a machine says of itself."""

from typing import Annotated, Any, Literal

from pydantic import Field

from paddock.contract.base import WORDS, Count, Model, example
from paddock.contract.cluster import NodeAmounts

_REPORT: dict[str, Any] = {
    "name": "node-1",
    "epoch": 1,
    "state": "ready",
    "url": "https://node-1.internal:8790",
    "capacity": {"cpus": 16.0, "memory_bytes": 68719476736, "sandboxes": 200},
    "used": {"cpus": 4.5, "memory_bytes": 9663676416, "sandboxes": 18},
    "creations": 2,
    "labels": {"zone": "a"},
    "levels": ["low", "medium", "high"],
    "images": ["paddock/sandbox:latest"],
    "waiting": {"low paddock/sandbox:latest": 2},
    "used_by": {"ci": 18},
    "version": "0.1.0",
    "rules_digest": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
}


class NodeReport(Model):
    """What the machine that answers has, and what of it is used."""

    model_config = example(_REPORT)

    name: str = Field(description="Its name in its cluster; without one, the host's.")
    epoch: Count = Field(description="Its number in the cluster; 0 without one.")
    state: Annotated[Literal["ready", "draining", "gone"], WORDS] = Field(
        description="`draining`: it gets no new sessions; `gone`: its cluster has given it up."
    )
    url: str = Field(description="Where gateways reach it; empty without a cluster.")
    capacity: NodeAmounts = Field(description="What it can give to sandboxes.")
    used: NodeAmounts = Field(description="What it has given to them.")
    creations: Count = Field(description="Sessions that are being created or wait for that.")
    labels: dict[str, str] = Field(description="By which sessions may choose it.")
    levels: list[str] = Field(description="The levels that it can enforce.")
    images: list[str] = Field(description="The images that sessions may choose.")
    waiting: dict[str, Count] = Field(
        description="Sandboxes that wait for a session, by level and image."
    )
    used_by: dict[str, Count] = Field(description="Sandboxes by the keys that have them.")
    version: str = Field(description="Its program's version.")
    rules_digest: str = Field(description="The same on nodes that have the same levels.")
