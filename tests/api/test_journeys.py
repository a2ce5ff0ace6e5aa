"""How many modules of the server a request enters: a reader follows it through as many."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import PurePath
from types import FrameType
from typing import Any

from tests.api.conftest import Api
from tests.support.sources import ROOT

SERVER = (f"{ROOT}/orchestrator/", f"{ROOT}/api/")


@contextmanager
def entered() -> Iterator[set[PurePath]]:
    """The server's modules whose code runs on the event loop meanwhile."""
    modules: set[PurePath] = set()

    def enter(frame: FrameType, event: str, _argument: Any) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(SERVER):
            modules.add(PurePath(name).relative_to(ROOT))

    before = sys.getprofile()
    sys.setprofile(enter)
    try:
        yield modules
    finally:
        sys.setprofile(before)


def rooms(modules: set[PurePath]) -> set[PurePath]:
    return {module.parent for module in modules}


async def test_a_command(api: Api) -> None:
    session = await api.session(permission_level="high")
    path = f"/api/sessions/{session['id']}/exec"
    await api.json("POST", path, json={"argv": ["true"]})
    with entered() as modules:
        await api.json("POST", path, json={"argv": ["true"]})

    assert len(modules) <= 77
    assert len(rooms(modules)) <= 21


async def test_a_creation(api: Api) -> None:
    await api.session()
    with entered() as modules:
        await api.session()

    assert len(modules) <= 131
    assert len(rooms(modules)) <= 31
