"""Two nodes of one cluster in this process: real control planes and PostgreSQL, fake engines."""

import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from orchestrator.control_plane import ControlPlane
from orchestrator.host.engine.base import LABEL_IMAGE, Image
from orchestrator.host.engine.fake import FakeEngine
from orchestrator.host.workspace import mounts
from orchestrator.sandbox.egress.resolver import Resolver
from orchestrator.settings.settings import Settings
from tests.api.conftest import IMAGE, Api, served, usual_settings
from tests.support.cluster_store import CLUSTER
from tests.support.fake_agent import Agents

SEAL = "5ea1" * 16


@contextmanager
def node_settings(dsn: str, name: str, seal: str | None = SEAL, **more: Any) -> Iterator[Settings]:
    """The settings of a node with a state directory of its own. `seal` None: no key."""
    with tempfile.TemporaryDirectory(prefix="pdk-") as directory:
        path = Path(directory)
        key = path / "seal.key"
        key.write_text(seal or "")
        state = path / "state"
        yield usual_settings().model_copy(
            update={
                **{"cluster": CLUSTER, "cluster_database": SecretStr(dsn), "node": name},
                "cluster_secrets_key_file": None if seal is None else key,
                **{"state_dir": state, "workspaces_dir": state / "session-workspaces"},
                **more,
            }
        )
        for point in reversed(mounts.mounts_under(directory)):
            mounts.unmount(point)


@asynccontextmanager
async def shared_node(settings: Settings, resolver: Resolver | None = None) -> AsyncIterator[Api]:
    """A node, its API and its sandboxes, which end with it."""
    agents = Agents()
    images = {IMAGE: Image("sha256:1", {LABEL_IMAGE: "sandbox"})}
    engine = FakeEngine(images=images, on_start=agents.start, on_stop=agents.stop)
    async with AsyncExitStack() as closers:
        closers.push_async_callback(agents.close)
        plane = await ControlPlane.open(settings, engine, resolver)
        closers.push_async_callback(plane.close)
        yield await closers.enter_async_context(served(plane, engine, agents))


@asynccontextmanager
async def shared_nodes(dsn: str, *names: str, **more: Any) -> AsyncIterator[list[Api]]:
    """Nodes with these names. `more` are settings of all of them."""
    async with AsyncExitStack() as closers:
        found = [closers.enter_context(node_settings(dsn, name, **more)) for name in names]
        yield [await closers.enter_async_context(shared_node(each)) for each in found]
