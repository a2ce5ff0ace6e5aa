"""Inspect's own self-check of sandboxes, with the sandbox that its registry has."""

import os
from collections.abc import AsyncIterator
from typing import Any

import pytest
from inspect_ai.util import SandboxEnvironment
from inspect_ai.util._sandbox.registry import registry_find_sandboxenv
from inspect_ai.util._sandbox.self_check import *  # noqa: F403

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def sandbox_env(anyio_backend: str) -> AsyncIterator[SandboxEnvironment]:
    """Found by the entry point of the installed package."""
    kind: Any = registry_find_sandboxenv("paddock")
    config = kind.config_deserialize({"permission_level": os.environ["SUITE_LEVEL"]})
    environments = await kind.sample_init("self check", config, {})
    try:
        yield environments["default"]
    finally:
        await kind.sample_cleanup("self check", config, environments, False)
