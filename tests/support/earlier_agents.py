"""Sandboxes with the agents of earlier versions, whose code `tests/fixtures/agents/` keeps."""

import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from orchestrator.host.engine.base import Image, MountedAgent
from orchestrator.host.link import agent_link
from orchestrator.sandbox.images.mounted_agents import MountedAgents
from orchestrator.sandbox.sandboxes import agent_parts, container_parts
from orchestrator.sandbox.sandboxes.configuration import configuration_of
from orchestrator.sandbox.sandboxes.suitability import Suitability
from sandbox_agent.decide.protocol import Message

KEPT = {
    int(path.name.partition("-")[0]): path
    for path in (Path(__file__).parents[1] / "fixtures" / "agents").glob("*.tar.xz")
}
# Their containers ran the image's own Python.
_COMMAND = ("/usr/bin/python3", "-I", "-S", "/opt/paddock")
# What the earlier versions did not configure.
_LATER = ("volumes", "workspace")


@contextmanager
def of_protocol(protocol: int, directory: Path) -> Iterator[None]:
    """New sandboxes have the agent of that protocol, as the version had it that spoke it.

    `directory` is empty. What is made so is what that version's control plane has left.
    """
    with tarfile.open(KEPT[protocol]) as archive:
        archive.extractall(directory, filter="data")
    entry = directory / "__main__.py"
    entry.write_bytes((directory / "sandbox_agent" / "__main__.py").read_bytes())
    for path in (directory, *directory.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)

    async def mounted(_self: Any, _image: Image, hidden: tuple[str, ...] = ()) -> MountedAgent:
        return MountedAgent(str(directory), _COMMAND, (), hidden)

    def configuration(*given: Any) -> Message:
        members = configuration_of(*given)
        return {name: value for name, value in members.items() if name not in _LATER}

    async def suits(*_: Any, **_more: Any) -> None:
        """The first agent did not tell all facilities."""

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(MountedAgents, "mounted", mounted)
        patched.setattr(agent_parts, "configuration_of", configuration)
        patched.setattr(Suitability, "check_sandbox", suits)
        for module in (agent_link, container_parts):
            patched.setattr(module, "PROTOCOL_VERSION", protocol)
        yield
