"""No session starts on an engine that can't confine sandboxes, and the refusal names it."""

from dataclasses import replace
from typing import Any

import pytest

from tests.api.conftest import Api


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        ({"podman": True}, "Podman is not supported"),
        ({"selinux": True}, "SELinux labels"),
        ({"rootless": True}, "rootless engines are not supported"),
        ({"userns_remap": True}, "userns-remap"),
    ],
)
async def test_it_is_refused_by_name(api: Api, found: dict[str, Any], reason: str) -> None:
    api.engine.described = replace(api.engine.described, **found)
    refused = await api.json("POST", "/api/sessions", json={}, status=503)
    assert reason in str(refused)
    assert not api.engine.specs
    api.engine.described = replace(api.engine.described, **dict.fromkeys(found, False))
    assert (await api.session())["status"] == "active"
