"""No session starts on an engine that can't confine sandboxes, and the refusal names it."""

from dataclasses import replace

import pytest

from orchestrator.host.engine.base import EngineInfo
from tests.api.conftest import Api

INFO = EngineInfo("27.1", "2", rootless=False, userns_remap=False)


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (replace(INFO, podman=True), "Podman is not supported"),
        (replace(INFO, selinux=True), "SELinux labels"),
        (replace(INFO, rootless=True), "rootless engines are not supported"),
        (replace(INFO, userns_remap=True), "userns-remap"),
    ],
)
async def test_it_is_refused_by_name(api: Api, found: EngineInfo, reason: str) -> None:
    api.engine.described = found
    refused = await api.json("POST", "/api/sessions", json={}, status=503)
    assert reason in str(refused)
    assert not api.engine.specs
    api.engine.described = INFO
    assert (await api.session())["status"] == "active"
