"""Who waits for a template's preparation, how long, and what is done once."""

import asyncio
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import pytest

from orchestrator.ground.errors import (
    CapacityExhaustedError,
    ConflictError,
    SandboxUnavailableError,
    ValidationError,
)
from orchestrator.ground.events import EventDraft
from orchestrator.operate.templates.preparation import PREPARER, TemplateVersion
from orchestrator.operate.templates.templates import Templates
from orchestrator.rules.policy.levels import Levels, load_levels
from orchestrator.rules.templates.template import Template
from orchestrator.rules.templates.template_files import TemplateFiles
from orchestrator.sandbox.named_snapshots.snapshot_rows import NamedSnapshot
from orchestrator.state.requests import NewSession
from tests.support.box import TESTER


class _Page(NamedTuple):
    snapshot: NamedSnapshot


@dataclass
class _Host:
    """What templates use of an instance. A preparation waits for `go`."""

    kept: list[NamedSnapshot] = field(default_factory=list)
    begun: list[str] = field(default_factory=list)
    recorded: list[EventDraft] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    go: asyncio.Event = field(default_factory=asyncio.Event)
    started: asyncio.Event = field(default_factory=asyncio.Event)
    error: Exception | None = None
    image: str = "sha256:1"

    def choose(self, *_: object) -> tuple[str, ...]:
        return ("image:1",)

    async def chosen(self, _level: str, permitted: tuple[str, ...]) -> tuple[str, None]:
        return permitted[0], None

    def look_up(self, _image: str) -> asyncio.Task[str]:
        async def found() -> str:
            return self.image

        return asyncio.create_task(found())

    async def page(
        self, _owner: str, _session: None, after: tuple[str, str], _limit: int
    ) -> list[_Page]:
        return [_Page(each) for each in self.kept if after[1] < (each.name or "")]

    async def remove(self, _principal: object, _owner: str, ref: str) -> None:
        self.removed.append(ref)
        self.kept = [each for each in self.kept if each.id != ref]

    def files_of(self, snapshot: NamedSnapshot) -> Any:
        return snapshot

    async def record_system(self, draft: EventDraft) -> None:
        self.recorded.append(draft)

    async def run(self, version: TemplateVersion) -> NamedSnapshot:
        self.begun.append(version.digest)
        self.started.set()
        await self.go.wait()
        if self.error is not None:
            raise self.error
        number, name = len(self.begun), version.snapshot
        moment = f"2026-03-04T09:30:{number:02}.000000Z"
        snapshot = NamedSnapshot(
            f"snap-{number}", PREPARER.name, name, "s", "k", moment, 1, 1, 1, sha256="0", ready=True
        )
        self.kept.append(snapshot)
        return snapshot


def templates(host: _Host, seconds: float = 60) -> Templates:
    files = TemplateFiles()
    files._templates = {"site": Template("site", "0")}
    parts: list[Any] = [host] * 8
    levels = Levels(load_levels(None))
    return Templates(cast(int, seconds), files, levels, *parts)


async def test_one_preparation_serves_all_who_wait() -> None:
    host = _Host()
    made = templates(host)
    asking = [asyncio.create_task(made.prepared(TESTER, "site", NewSession())) for _ in range(5)]
    await host.started.wait()
    assert (await made.show("site")).state == "building"
    host.go.set()
    requests = await asyncio.gather(*asking)
    assert len(host.begun) == 1
    assert {cast(Any, request.files).id for request in requests} == {"snap-1"}
    assert (await made.show("site")).state == "built"
    assert [draft.operation for draft in host.recorded] == ["template.start", "template.end"]


async def test_it_continues_without_those_who_have_left() -> None:
    host = _Host()
    made = templates(host)
    asking = asyncio.create_task(made.prepared(TESTER, "site", NewSession()))
    await host.started.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    host.go.set()
    await made.prepared(TESTER, "site", NewSession())
    assert len(host.begun) == 1


async def test_nobody_waits_longer_than_the_operator_says() -> None:
    host = _Host()
    made = templates(host, 0.01)
    with pytest.raises(CapacityExhaustedError, match="site") as refused:
        await made.prepared(TESTER, "site", NewSession())
    assert refused.value.fields["retry_after"] > 0
    await made.close()


async def test_another_image_is_another_version_and_the_old_one_is_removed() -> None:
    host = _Host()
    host.go.set()
    made = templates(host)
    await made.prepared(TESTER, "site", NewSession())
    host.image = "sha256:2"
    assert (await made.show("site")).state == "stale"
    await made.prepared(TESTER, "site", NewSession())
    assert (len(set(host.begun)), host.removed) == (2, ["snap-1"])
    await made.prepared(TESTER, "site", NewSession())
    assert len(host.begun) == 2


async def test_what_was_no_commands_fault_is_tried_again() -> None:
    host = _Host(error=SandboxUnavailableError("the agent does not answer"))
    host.go.set()
    made = templates(host)
    for _ in range(2):
        with pytest.raises(SandboxUnavailableError):
            await made.prepared(TESTER, "site", NewSession())
    shown = await made.show("site")
    assert shown.failure is not None
    assert (shown.state, shown.failure.error) == ("failed", "the agent does not answer")
    assert [draft.error for draft in host.recorded[1::2]] == ["the agent does not answer"] * 2
    host.error = None
    await made.prepared(TESTER, "site", NewSession())
    assert (await made.show("site")).state == "built"


async def test_a_mistake_of_the_operators_is_not_the_requests() -> None:
    host = _Host(error=ValidationError("env.A is not allowed at low", field="env"))
    host.go.set()
    with pytest.raises(ConflictError, match="site could not be prepared: env") as refused:
        await templates(host).prepared(TESTER, "site", NewSession())
    assert "field" not in refused.value.fields


async def test_a_close_ends_a_preparation() -> None:
    host = _Host()
    made = templates(host)
    asking = asyncio.create_task(made.build(TESTER, "site"))
    await host.started.wait()
    await made.close()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert host.kept == []
