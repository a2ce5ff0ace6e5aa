"""Break-glass: admins touch other keys' sessions only by an access, on record and told."""

import asyncio
import json
from typing import Any

import pytest

from api.catalog import OPERATIONS
from api.shape.access import ROLES, Glass
from orchestrator.rules.access.keys import Principal, Role
from orchestrator.settings.settings import Settings
from tests.api.conftest import ADMIN_KEY, OPERATOR_KEY, Api
from tests.api.test_roles import _request
from tests.support.fake_agent import Play
from tests.support.keys import entry
from tests.support.limits import WAIT_SECONDS
from tests.support.until import until

CANARY = "canary-7f3a9c51"
SECOND = "pdk_second-admin-of-the-tests"
GLASS = "/api/sessions/box/break-glass"
EXEC = "/api/sessions/box/exec"
WHY = {"reason": "incident 4711"}


@pytest.fixture
def settings(settings: Settings) -> Settings:
    assert settings.keys_file is not None
    settings.keys_file.write_text(
        entry("operator", OPERATOR_KEY) + entry("second", SECOND, "admin")
    )
    return settings.model_copy(update={"break_glass": True, "compat": ("e2b", "swerex")})


async def _with_content(api: Api) -> dict[str, Any]:
    """A session of the operator with a canary in all that it does; the command that still runs."""
    made = await api.session(id="box", key=OPERATOR_KEY, permission_level="low")
    api.agent.plays["tail"] = Play(stdout=CANARY.encode(), holds=True)
    api.agent.plays["cat"] = Play(stdout=CANARY.encode())
    await api.json("POST", EXEC, key=OPERATOR_KEY, json={"argv": ["cat", CANARY]})
    running = {"argv": ["tail", CANARY], "background": True}
    command = await api.json("POST", EXEC, status=202, key=OPERATOR_KEY, json=running)
    refused = {"argv": ["curl", CANARY]}
    await api.json("POST", EXEC, status=403, key=OPERATOR_KEY, json=refused)
    path = f"/api/sessions/box/files/write?path={CANARY}"
    await api.call("PUT", path, key=OPERATOR_KEY, data=CANARY.encode())
    note = {"text": CANARY, "tags": [CANARY]}
    await api.json("POST", "/api/memory", status=200, key=OPERATOR_KEY, json=note)
    return {**made, "command_id": command["command_id"]}


async def test_no_operation_gives_an_admin_any_content(api: Api) -> None:
    """All operations of the table, but those that end it, which come last."""
    made = await _with_content(api)
    recorded = await api.json("GET", "/api/sessions/box/audit", key=OPERATOR_KEY)
    assert CANARY in json.dumps(recorded)
    asked = len(api.agent.requests)
    ending = {"complete_session", "abort_session", "close_session", "pause_session"}
    stopping = {*ending, "interrupt_session", "resume_session"}
    outside = {"inspect_session", "move_session", "open_break_glass", "close_break_glass"}
    of_session = [each for each in OPERATIONS if "{session_id}" in each.path]
    assert {each.id for each in of_session if each.glass is Glass.OUTSIDE} == (
        stopping - {"resume_session"} | outside
    )
    for operation in OPERATIONS:
        if operation.id in (*stopping, "open_break_glass", "follow_all"):
            continue
        if Role.ADMIN not in ROLES[operation.access]:
            continue
        path, arguments = _request(operation, made["command_id"])
        response = await api.call(operation.method, path, **arguments)
        text = await response.text()
        assert CANARY not in text, operation.id
        inside = "{session_id}" in operation.path and operation.glass is not Glass.OUTSIDE
        if inside and operation.id != "ensure_session":
            assert response.status in (403, 404), operation.id
            if response.status == 403 and text:
                assert json.loads(text)["rule"] == "break-glass", operation.id
    assert len(api.agent.requests) == asked
