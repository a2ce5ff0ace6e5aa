"""Threads set scheduling, priority and limits of themselves by their numbers, as pthreads do."""

import json
import shlex
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from orchestrator.control_plane import ControlPlane
from orchestrator.state.pack import Pack
from paddock.contract.pack_form import ToolClass
from tests.support.box import Box
from tests.support.plane import opened

pytestmark = pytest.mark.asyncio(loop_scope="module")

PACKAGED = Path(__file__).parents[2] / "orchestrator/rules/policy/levels"
# Python's modules, and the libraries of its extensions.
_LIBRARIES = json.dumps(
    [
        *("/usr/lib/python3.11", "/usr/local/lib/python3.11"),
        *("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu"),
    ]
)
# Every call on the thread that makes it, on another thread of its process, and on another process.
CALLS = """
import ctypes, json, os, resource, threading
library = ctypes.CDLL(None, use_errno=True)
library.pthread_self.restype = ctypes.c_void_p
def scheduled_as_posix():
    none = ctypes.c_int(0)
    me = ctypes.c_void_p(library.pthread_self())
    if library.pthread_setschedparam(me, 0, ctypes.byref(none)): raise OSError("posix")
limit = resource.getrlimit(resource.RLIMIT_CPU)
def numbered(number):
    return {
        "scheduler": lambda: os.sched_setscheduler(number, 0, os.sched_param(0)),
        "parameter": lambda: os.sched_setparam(number, os.sched_param(0)),
        "affinity": lambda: os.sched_setaffinity(number, os.sched_getaffinity(0)),
        "priority": lambda: os.setpriority(os.PRIO_PROCESS, number, 10),
        "limit": lambda: resource.prlimit(number, resource.RLIMIT_CPU, limit),
    }
def failing(calls):
    failed = []
    for name, call in calls.items():
        try: call()
        except OSError: failed.append(name)
    return failed
told = {}
def tell():
    told["caller"] = failing(numbered(0))
    told["itself"] = failing(numbered(threading.get_native_id()) | {"posix": scheduled_as_posix})
    told["first thread"] = failing(numbered(os.getpid()))
thread = threading.Thread(target=tell)
thread.start(); thread.join()
waiting, ready = threading.Event(), threading.Event()
other = threading.Thread(target=lambda: (ready.set(), waiting.wait()))
other.start(); ready.wait()
told["another thread"] = failing(numbered(other.native_id))
waiting.set(); other.join()
theirs, ours = os.pipe()
child = os.fork()
if child == 0:
    os.close(ours); os.read(theirs, 1); os._exit(0)
told["its child"] = failing(numbered(child))
os.close(ours); os.waitpid(child, 0)
told["its parent"] = failing(numbered(os.getppid()))
print(json.dumps(told))
"""
ALL = ["scheduler", "parameter", "affinity", "priority", "limit"]
TOLD: dict[str, list[str]] = {
    **{who: [] for who in ("caller", "itself", "first thread", "another thread")},
    **dict.fromkeys(("its child", "its parent"), ALL),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(
    sandbox_image: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ControlPlane]:
    """Levels as they are packaged, which may run Python."""
    directory = tmp_path_factory.mktemp("levels")
    for level in ("low", "medium"):
        text = (PACKAGED / f"{level}.toml").read_text()
        for before, after in (
            ('"pwd",', '"pwd", "python3",'),
            ("[confinement]", f"[confinement]\nread = {_LIBRARIES}"),
        ):
            assert before in text
            text = text.replace(before, after, 1)
        (directory / f"{level}.toml").write_text(text)
    async with opened(image=sandbox_image, levels_dir=directory) as plane:
        yield plane


@pytest.mark.parametrize("level", ["low", "medium", "high"])
async def test_own_threads_and_no_others(plane: ControlPlane, level: str) -> None:
    box = await Box.create(plane, level)
    assert (await box.python(CALLS)).value == TOLD
    await box.close()


@pytest.mark.parametrize("mode", ["hard_fail", "warn"])
async def test_in_a_session_with_a_pack_as_well(plane: ControlPlane, mode: str) -> None:
    words = shlex.join(["python3", "-c", CALLS])
    pack = Pack(
        *("threads", "sha256:" + "0" * 64, mode), tools=frozenset(ToolClass), commands=(words,)
    )
    box = await Box.create(plane, "high", consume=pack)
    assert (await box.python(CALLS)).value == TOLD
    assert box.session.live
    await box.close()


async def test_one_that_never_stops_asking_holds_nobody_up(plane: ControlPlane) -> None:
    """The agent answers each call; other commands of the session run as before."""
    box = await Box.create(plane, "high")
    asking = await box.start(
        argv=[
            *("python3", "-c"),
            "import os, threading\n"
            "def ask():\n"
            "    own = threading.get_native_id()\n"
            "    while True: os.sched_setparam(own, os.sched_param(0))\n"
            "for _ in range(20): threading.Thread(target=ask).start()\n"
            "print('asking', flush=True)\n",
        ],
        background=True,
    )
    await box.printed(asking, "asking")
    for number in range(5):
        assert (await box.run(argv=["echo", str(number)])).stdout == f"{number}\n"
    await box.close()
