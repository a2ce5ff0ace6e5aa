"""What a state directory's control plane may leave behind: nothing."""

import os
from pathlib import Path

import docker

from orchestrator.engine.base import LABEL_INSTANCE
from orchestrator.workspace.mounts import mounts_under


def containers(state_dir: Path) -> list[str]:
    """Names of the instance's containers, in any state."""
    client = docker.APIClient(version="auto")
    try:
        label = f"{LABEL_INSTANCE}={instance(state_dir)}"
        found = client.containers(all=True, filters={"label": [label]})
        return [name for container in found for name in container["Names"]]
    finally:
        client.close()


def networks(state_dir: Path) -> list[str]:
    """Names of the instance's networks."""
    client = docker.APIClient(version="auto")
    try:
        label = f"{LABEL_INSTANCE}={instance(state_dir)}"
        return [network["Name"] for network in client.networks(filters={"label": [label]})]
    finally:
        client.close()


def instance(state_dir: Path) -> str:
    """The id in the labels."""
    return (state_dir / "instance").read_text().strip()


def left_behind(state_dir: Path) -> dict[str, list[str]]:
    """Everything of sessions that exists on the host; empty lists when nothing does."""
    sandboxes = state_dir / "sandboxes"
    return {
        "containers": containers(state_dir),
        "mounts": mounts_under(str(state_dir)),
        "directories": os.listdir(sandboxes) if sandboxes.exists() else [],
    }


NOTHING: dict[str, list[str]] = {"containers": [], "mounts": [], "directories": []}
