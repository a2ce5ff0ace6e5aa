"""Each part of a sandbox on its own."""

import gc
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orchestrator.ground.errors import (
    EngineUnavailableError,
    SandboxUnavailableError,
    ValidationError,
)
from orchestrator.host.engine.base import (
    LABEL_IMAGE,
    LABEL_PROTOCOL,
    Container,
    ContainerState,
    Image,
    MountedAgent,
)
from orchestrator.host.engine.fake import FakeEngine
from orchestrator.host.engine.runtimes import Runtimes
from orchestrator.host.link.listener import Listener
from orchestrator.host.link.vouching import Vouching
from orchestrator.host.node.sockets import listening
from orchestrator.host.workspace import mounts
from orchestrator.rules.policy.levels import effective_limits, load_levels
from orchestrator.sandbox.images.checked_images import CheckedImages
from orchestrator.sandbox.images.mounted_agents import LABEL_AGENT, MountedAgents
from orchestrator.sandbox.sandboxes.agent_parts import AgentPart, HelloPart, LinkPart
from orchestrator.sandbox.sandboxes.configuration import configuration_of
from orchestrator.sandbox.sandboxes.container_parts import ContainerPart, RatesPart
from orchestrator.sandbox.sandboxes.host_parts import (
    LABEL_MOUNTS,
    LABEL_NETWORK,
    DirectoryPart,
    MountsPart,
    NetworkPart,
    QuotaPart,
    WorkspacePart,
)
from orchestrator.sandbox.sandboxes.mounted_agent_part import MountedAgentPart
from orchestrator.sandbox.sandboxes.open_network import OpenNetworkUse
from orchestrator.sandbox.sandboxes.parts import Plan, Tenancy
from orchestrator.sandbox.sandboxes.sandbox_directories import SandboxDirectories
from orchestrator.sandbox.sandboxes.suitability import Suitability
from orchestrator.settings.operator_mounts import OperatorMount
from orchestrator.state.budget import Budget
from orchestrator.state.directory import SandboxDirectory
from orchestrator.state.family import Family
from orchestrator.state.terms import Terms
from paddock.contract.words import Kind
from sandbox_agent.core.configuration import parse
from tests.support.fake_node import FakeNode
from tests.support.kernels import FULL_KERNEL


class Link:
    """A link whose agent says hello at once, or never."""

    def __init__(self) -> None:
        self.hello: Any = SimpleNamespace(kernel=FULL_KERNEL, configured=False)
        self.configuration: dict[str, Any] = {}
        self.refusal: str | None = None
        self.connected = True
        self.protocol, self.earlier = 0, False
        self.said: list[str] = []

    async def listen(self) -> None:
        self.said.append("listen")

    async def wait_connected(self, _timeout: float) -> None:
        if self.refusal is not None:
            raise SandboxUnavailableError(self.refusal)
        self.said.append("hello")

    def expect_configured(self) -> None:
        self.said.append("expects configured")

    async def request(self, method: str, params: dict[str, Any], timeout: float = 0) -> None:
        self.said.append(method)
        if method == "configure":
            if "refuses" in self.said:
                raise SandboxUnavailableError("the sandbox agent disconnected")
            self.configuration = params

    async def close(self) -> None:
        self.said.append("close")


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine(
        images={
            "ours": Image("sha256:1", {LABEL_IMAGE: "sandbox"}),
            "foreign": Image("sha256:2", {}),
        }
    )


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    return tmp_path


def plan_of(
    state_dir: Path, level: str = "low", given: dict[str, OperatorMount] | None = None
) -> Plan:
    found = load_levels()[level]
    secrets = SimpleNamespace(message=lambda: {"variables": {}, "given": []}, cut=None)
    session = SimpleNamespace(
        recovers=False,
        id="s",
        key="k",
        image="ours",
        workspace=SimpleNamespace(uid=1234),
        stages=False,
        pack=None,
        family=Family(),
        budget=Budget(datetime.now(UTC), {Kind.CPU_SECONDS: 5_000_000}),
        secrets=secrets,
        terms=Terms(),
        workspace_path="/workspace",
    )
    return Plan(
        *(Tenancy(cast(Any, session)), "ours", found, effective_limits(found, {}), given or {}),
        *(SandboxDirectory.fresh(state_dir), cast(Any, Link())),
    )


def found(**labels: str) -> Container:
    return Container("c", "x", {**labels}, ContainerState.RUNNING)


def said(plan: Plan) -> list[str]:
    return cast(Link, plan.link).said


async def test_only_levels_with_a_network_have_one(engine: FakeEngine, state_dir: Path) -> None:
    part = NetworkPart(OpenNetworkUse(engine, "ours"))
    low, high = plan_of(state_dir), plan_of(state_dir, "high")
    await part.open(low)
    assert (low.network, low.labels, engine.calls) == (None, {LABEL_NETWORK: ""}, [])
    await part.open(high)
    assert high.network == high.labels[LABEL_NETWORK] == "paddock-open-0a1b2c3d"
    assert high.resolvers == ("192.0.2.53",)
    again = plan_of(state_dir, "high")
    await part.adopt(again, found(**high.labels))
    assert again.network == high.network
    await part.close(high)
    assert engine.open_network  # other sandboxes may use it


async def test_the_directory_has_its_files_and_goes(state_dir: Path) -> None:
    part, plan = DirectoryPart(SandboxDirectories()), plan_of(state_dir)
    await part.open(plan)
    assert "sandbox:x:1234:" in plan.directory.passwd.read_text()
    assert list(plan.directory.run.iterdir()) == []  # no file of the session
    targets = {bind.target: bind.read_only for bind in plan.binds}
    assert targets == dict.fromkeys(
        (
            *("/run/paddock", "/run/paddock-ports", "/run/paddock-session"),
            *("/etc/passwd", "/etc/group", "/etc/resolv.conf"),
        ),
        True,
    )
    for _ in range(2):
        await part.close(plan)
        assert not plan.directory.path.exists()


async def test_a_directory_that_was_opened_half_way_goes(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part, plan = DirectoryPart(SandboxDirectories()), plan_of(state_dir)
    monkeypatch.setattr("orchestrator.state.directory.session_account", lambda *_: "\u20ac")
    with pytest.raises(UnicodeEncodeError):
        await part.open(plan)
    assert plan.directory.run.exists()
    await part.close(plan)
    assert not plan.directory.path.exists()


async def test_the_workspace_has_its_size_and_is_looked_at_for_rates(state_dir: Path) -> None:
    asked: list[object] = []

    class Workspaces:
        async def prepare(self, _workspace: object, size: int, stages: str | None) -> Path:
            asked.append((size, stages))
            return state_dir

    class Restrictions:
        async def disk(self, _workspace: object, _level: object, data: Path) -> str:
            asked.append(data)
            return "7:1"

    plan = plan_of(state_dir)
    await QuotaPart(cast(Any, Workspaces()), cast(Any, Restrictions())).open(plan)
    assert asked == [(plan.limits.workspace_bytes, None), state_dir]
    assert (plan.data, plan.disk) == (state_dir, "7:1")


async def test_mounts_are_made_with_their_flags_and_unmade(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[str, str, dict[str, bool]]] = []
    unmade: list[str] = []
    monkeypatch.setattr(mounts, "bind", lambda *where, **how: made.append((*where, how)))
    monkeypatch.setattr(mounts, "unmount", unmade.append)
    given = {
        "data": OperatorMount(source=str(state_dir), target="/mnt/data"),
        "sock": OperatorMount(source=str(state_dir), target="/run/sock", read_only=False),
    }
    plan, directories = plan_of(state_dir, given=given), SandboxDirectories()
    settings = SimpleNamespace(own_dirs=(), docker_host=None)
    parts = (
        DirectoryPart(directories),
        WorkspacePart(directories),
        MountsPart(cast(Any, settings), directories),
    )
    plan.data = state_dir / "files"
    for part in parts:
        await part.open(plan)
    directory, source = plan.directory, str(state_dir.resolve())
    points = [str(directory.mounts / name) for name in given]
    assert made == [
        (str(plan.data), str(directory.workspace), {"noexec": True, "read_only": False}),
        (source, points[0], {"noexec": True, "read_only": True}),
        (source, points[1], {"noexec": True, "read_only": False}),
    ]
    assert plan.labels == {LABEL_MOUNTS: "data sock"}
    # Not read-only by the engine, which would remove the mounts' other flags.
    assert not any(bind.read_only for bind in plan.binds if bind.source in points)
    told = configuration_of(plan)
    assert told["writable"] == ["/run/sock"]
    assert {"/mnt/data", "/run/sock"} <= set(told["confinement"]["read"])
    again = plan_of(state_dir)
    await parts[2].adopt(again, found(**plan.labels))
    assert again.mount_names == ("data", "sock")
    for part in reversed(parts):
        await part.close(plan)
    assert unmade == [*points, str(directory.workspace)]
    assert not directory.path.exists()


def test_pip_has_the_operators_index_where_there_is_a_network(state_dir: Path) -> None:
    index = "https://index.example/simple"
    variables = {
        level: configuration_of(plan_of(state_dir, level), index)["variables"]
        for level in ("low", "medium", "high")
    }
    assert variables == {
        "low": {},
        "medium": {"PIP_INDEX_URL": index},
        "high": {"PIP_INDEX_URL": index},
    }
    plan = plan_of(state_dir, "high")
    own = {"PIP_INDEX_URL": "https://own.example", "LANG": "C"}
    plan.level = replace(plan.level, variables=tuple(own.items()))
    assert configuration_of(plan, index)["variables"] == own


async def test_a_mount_of_a_missing_directory_is_refused(state_dir: Path) -> None:
    given = {"data": OperatorMount(source=str(state_dir / "gone"), target="/mnt/data")}
    settings = SimpleNamespace(own_dirs=(), docker_host=None)
    part = MountsPart(cast(Any, settings), SandboxDirectories())
    with pytest.raises(EngineUnavailableError, match="is not a directory of this host"):
        await part.open(plan_of(state_dir, given=given))


async def test_the_container_has_what_the_parts_offer(engine: FakeEngine, state_dir: Path) -> None:
    part, plan = ContainerPart(FakeNode(engine), None), plan_of(state_dir)
    await part.close(plan)  # there is no container yet
    plan.labels["paddock.network"] = "n"
    plan.network = "n"
    with pytest.raises(SandboxUnavailableError, match="has no agent"):
        await part.open(plan)
    plan.agent = MountedAgent("/state/agents/1", ("/agent",))
    await part.open(plan)
    (container,) = engine.containers.values()
    assert plan.container_id == container.id
    assert container.name == f"paddock-{plan.name}"
    assert container.labels["paddock.sandbox"] == plan.name
    assert container.labels["paddock.level"] == "low"
    assert engine.specs[container.id].network == container.labels["paddock.network"] == "n"
    again = plan_of(state_dir)
    await part.adopt(again, container)
    await part.leave(again)
    assert list(engine.containers) == [again.container_id]
    await part.close(again)
    assert engine.containers == {}


async def test_rates_need_a_container(state_dir: Path) -> None:
    with pytest.raises(SandboxUnavailableError):
        await RatesPart(cast(Any, None)).open(plan_of(state_dir))


async def test_the_agent_is_configured_after_it_was_checked(
    engine: FakeEngine, state_dir: Path
) -> None:
    checked: list[object] = []

    class Checks:
        async def check_sandbox(self, _level: object, hello: object, *, packed: bool) -> None:
            checked.append(hello)
            if len(checked) == 2:
                raise EngineUnavailableError("unmet")

    part, agent = (
        HelloPart(FakeNode(engine), cast(Any, Checks()), 1.0),
        AgentPart(engine, None, Vouching(lambda: 60.0)),
    )
    plan = plan_of(state_dir)
    await part.open(plan)
    assert said(plan) == ["hello"]
    await agent.open(plan)
    assert said(plan) == ["hello", "configure", "expects configured", "secrets"]
    told = parse(cast(Link, plan.link).configuration)
    assert (told.level, told.uid, told.cpu_budget_us) == ("low", 1234, 5_000_000)
    refused = plan_of(state_dir)
    with pytest.raises(EngineUnavailableError, match="unmet"):
        await part.open(refused)
    await part.close(refused)
    assert said(refused) == ["hello", "close"]


async def test_an_agent_that_is_silent_is_told_with_what_it_printed(
    engine: FakeEngine, state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def logs(_container: str) -> str:
        return "cannot confine\n"

    monkeypatch.setattr(engine, "logs", logs)
    plan = plan_of(state_dir)
    cast(Link, plan.link).refusal = "it did not connect"
    with pytest.raises(SandboxUnavailableError, match="connect; the agent said: cannot confine"):
        await HelloPart(FakeNode(engine), cast(Any, None), 1.0).open(plan)


async def test_an_agent_that_ends_instead_of_being_configured_says_why(
    engine: FakeEngine, state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def logs(_container: str) -> str:
        return "cannot confine commands: no\n"

    class Checks:
        async def check_sandbox(self, _level: object, _hello: object, *, packed: bool) -> None:
            """The sandbox meets all requirements."""

    monkeypatch.setattr(engine, "logs", logs)
    hello = HelloPart(FakeNode(engine), cast(Any, Checks()), 1.0)
    part, plan = AgentPart(engine, None, Vouching(lambda: 60.0)), plan_of(state_dir)
    said(plan).append("refuses")
    with pytest.raises(SandboxUnavailableError, match="disconnected; the agent said: cannot"):
        await part.open(plan)
    # It may also end right afterwards.
    ended = plan_of(state_dir)
    cast(Any, ended.link).connected = False
    with pytest.raises(SandboxUnavailableError, match="disconnected; the agent said: cannot"):
        await part.open(ended)
    # An agent that is already configured was configured by someone else, and is refused.
    other = plan_of(state_dir)
    cast(Link, other.link).hello.configured = True
    with pytest.raises(SandboxUnavailableError, match="configured by somebody else"):
        await hello.open(other)
    assert "configure" not in said(other)


async def test_a_paused_agent_is_adopted_without_a_hello(
    engine: FakeEngine, state_dir: Path
) -> None:
    part, plan = HelloPart(FakeNode(engine), cast(Any, None), 1.0), plan_of(state_dir)
    link = LinkPart()
    for state, expected in (
        (ContainerState.PAUSED, ["expects configured", "listen"]),
        (ContainerState.RUNNING, ["expects configured", "listen", "hello"]),
    ):
        said(plan).clear()
        container = Container("c", "x", {LABEL_PROTOCOL: "9"}, state)
        await link.adopt(plan, container)
        await part.adopt(plan, container)
        assert said(plan) == expected
        assert plan.link.protocol == 9
    await part.leave(plan)
    await link.leave(plan)
    assert said(plan)[-1] == "close"


async def test_images_of_others_are_refused(engine: FakeEngine, tmp_path: Path) -> None:
    suitability = Suitability(engine, cast(Any, None), CheckedImages(tmp_path), Runtimes(None))
    assert (await suitability.image_id("ours")).startswith("sha256:")
    with pytest.raises(
        ValidationError,
        match="was not checked: `paddock images add foreign`",
    ):
        await suitability.image_id("foreign")
    with pytest.raises(ValidationError, match="not on this engine"):
        await suitability.image_id("missing")


def test_a_link_without_its_directory_leaves_no_socket(tmp_path: Path) -> None:
    """Pytest fails tests that leave a socket unclosed."""
    with pytest.raises(FileNotFoundError):
        Listener(partial(listening, tmp_path / "none"), cast(Any, None)).open()
    gc.collect()


async def test_an_earlier_agent_goes_with_its_last_container(
    engine: FakeEngine, state_dir: Path
) -> None:
    agents = MountedAgents(engine, state_dir, "ours")
    part = MountedAgentPart(engine, agents, CheckedImages(state_dir))
    current = await agents.directory()
    earlier = current.with_name("0123456789abcdef")
    earlier.mkdir()
    found = Container("c", "paddock-c", {LABEL_AGENT: earlier.name}, ContainerState.RUNNING)
    engine.containers["c"] = found
    adopted, started = plan_of(state_dir), plan_of(state_dir)
    started.image_id = "sha256:1"
    await part.adopt(adopted, found)
    await part.open(started)
    assert started.labels[LABEL_AGENT] == current.name
    await part.close(started)
    assert earlier.exists()
    await engine.remove("c")
    await part.close(adopted)
    assert list(current.parent.iterdir()) == [current]


async def test_volumes_of_an_image_of_ours_are_hidden(engine: FakeEngine, state_dir: Path) -> None:
    labels = {LABEL_IMAGE: "sandbox"}
    images = {
        "ours": Image("sha256:1", labels),
        "data": Image("sha256:2", labels, volumes=("/data", "/workspace")),
        "bad": Image("sha256:3", labels, volumes=("/etc",)),
    }
    engine._images = images
    agents = MountedAgents(engine, state_dir, "ours")
    part, plan = MountedAgentPart(engine, agents, CheckedImages(state_dir)), plan_of(state_dir)
    plan.image_id = "sha256:2"
    await part.open(plan)
    assert plan.agent is not None
    assert plan.agent.hidden == ("/data",)
    plan.image_id = "sha256:3"
    with pytest.raises(ValidationError, match="declares the volume /etc"):
        await part.open(plan)
