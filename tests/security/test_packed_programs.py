"""Sessions whose pack is the source of a published package: programs work on it, and see no more.

They share one workspace: the package, the tests' own programs, and a file that no pack has.
"""

import asyncio
import contextlib
import io
import secrets
import tarfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import docker
import pytest
import pytest_asyncio

from api.views.packs import pack_of
from orchestrator.control_plane import ControlPlane
from orchestrator.ground.errors import PaddockError, SessionTerminatedError
from orchestrator.work.terminals.spec import TerminalSpec
from paddock import pack
from paddock.contract.words import Rationale
from tests.support.box import PATIENCE, TESTER, Box
from tests.support.leaks import NOTHING, left_behind
from tests.support.tool import Tool, spec
from tests.support.until import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

CANARY = "canary-1c84d07a"
SECRET = "/workspace/src/secret.py"
PACKAGE = Path(docker.__file__).parent
SOURCES = sorted(PACKAGE.rglob("*.py"))
LISTED = "src/docker/types/base.py"
FORKS = 300
# Each process reads a listed file and the other one; at most 50 are alive at a time.
STORM = f"""
import os
def read(path):
    try: return open(path).read()
    except OSError as error: return str(error.errno)
alive = 0
for _ in range({FORKS}):
    if os.fork() == 0:
        print(len(read("{LISTED}")), read("src/secret.py"), flush=True)
        os._exit(0)
    alive += 1
    if alive == 50:
        os.wait(); alive -= 1
while alive:
    os.wait(); alive -= 1
"""
# A process that has left its command's session and group.
BACKGROUND = """
import os
if os.fork() == 0:
    os.setsid()
    try: print(open("src/secret.py").read(), flush=True)
    except OSError as error: print(error.errno, flush=True)
    os._exit(0)
os.wait()
"""
PROMPT = """
while True:
    path = input("tool=> ")
    try: print(open(path).readline().strip())
    except OSError as error: print(error.errno)
"""
PROGRAMS = {"storm.py": STORM, "background.py": BACKGROUND, "prompt.py": PROMPT}
Packed = Callable[..., Awaitable[Box]]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def packed(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Packed:
    """Opens sessions of that workspace, with the package and the programs in their pack."""
    root = tmp_path_factory.mktemp("tree")
    for file in SOURCES:
        copy = root / "src/docker" / file.relative_to(PACKAGE)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(file.read_bytes())
    (root / "programs").mkdir()
    for name, text in PROGRAMS.items():
        (root / "programs" / name).write_text(text)
    given = pack(root, write=["out"], shell=["*"])
    (root / "src/secret.py").write_text(f"KEY = '{CANARY}'\n")
    name = f"pack-{secrets.token_hex(4)}"
    box = await Box.create(control_plane, "high", id=name)
    await box.unpack(_tar(root))
    await control_plane.sessions.close(TESTER, box.session, purge=False)

    async def create(level: str, mode: str = "hard_fail") -> Box:
        consume = pack_of(given.model_copy(update={"mode": mode}))
        return await Box.create(control_plane, level, id=name, consume=consume)

    return create


def _tar(root: Path) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        archive.add(root, ".")
    return data.getvalue()


async def missed(box: Box) -> int:
    """How many denied reads of the unlisted file are on record."""
    events = await box.events("read")
    assert {event["args"]["path"] for event in events} <= {SECRET}
    assert {event["decision"] for event in events} <= {"deny"}
    return sum(event["args"].get("repeats", 1) for event in events)


async def missed_in_all(box: Box, count: int) -> None:
    """Waits until so many are on record: counted ones are told after their command's end."""
    seq = 0
    async with asyncio.timeout(PATIENCE):
        while await missed(box) < count:
            seq = await box.plane.ledger.wait(box.session.key, seq)
    assert await missed(box) == count


async def assert_ended(box: Box) -> None:
    """The session has ended because of a miss, on record in that order, and nothing is left."""
    await box.event("coordination.context_refinement_request")
    # It is on record a moment before the session has it.
    await until(lambda: box.session.termination is not None)
    assert box.session.termination is not None
    assert box.session.termination.rationale_code is Rationale.CONTEXT_MISS
    names = [event["operation"] for event in await box.events()]
    assert names.index("read") < names.index("session.terminated")
    assert await missed(box) >= 1
    assert CANARY not in str(await box.events())
    await until(lambda: left_behind(box.plane.settings.state_dir) == NOTHING)


@pytest.mark.parametrize("level", ["low", "high"])
async def test_a_packages_source_is_searched_and_compiled(packed: Packed, level: str) -> None:
    box = await packed(level)
    found = await box.run(argv=["grep", "-rn", "class DictType", "src/docker"])
    assert found.exit_code == 0, found.stderr
    assert LISTED in found.stdout
    if level == "high":
        for place in ("/tmp/cache", "/workspace/out"):
            variables = {"PYTHONPYCACHEPREFIX": place}
            compiled = await box.run(
                argv=["python3", "-m", "compileall", "src/docker"], env=variables
            )
            assert compiled.exit_code == 0, compiled.stdout + compiled.stderr
            assert compiled.stdout.count("Compiling") == len(SOURCES)
        assert list((box.workspace / "out").rglob("base.*.pyc"))
        executed = await box.run(argv=["python3", LISTED])
        assert executed.exit_code == 0, executed.stderr
    assert await missed(box) == 0
    assert box.session.live
    with contextlib.suppress(SessionTerminatedError):
        ended = await box.run(argv=["grep", "-r", "KEY", "src"])
        assert CANARY not in ended.stdout + ended.stderr
    await assert_ended(box)


async def test_every_miss_of_terminals_background_processes_and_forks_is_counted(
    packed: Packed,
) -> None:
    box = await packed("high", "soft_fail")
    opened = await box.plane.terminals.open(TESTER, box.session, _prompt())
    tool = Tool(box, opened)
    assert await tool.output(LISTED) == "class DictType(dict):"
    assert await tool.output("src/secret.py") == "13"
    await tool.close()
    background = await box.start("python3 programs/background.py", background=True)
    assert (await box.finish(background)).stdout == "13\n"
    await missed_in_all(box, 2)
    storm = await box.run("python3 programs/storm.py")
    size = (PACKAGE / "types/base.py").stat().st_size
    assert storm.stdout.splitlines() == [f"{size} 13"] * FORKS, storm.stderr
    await missed_in_all(box, 2 + FORKS)
    # A write outside the pack's is refused by the kernel, and is no miss; over the API it is on
    # record.
    assert (await box.run(f"cp {LISTED} src/new.py")).exit_code != 0
    with pytest.raises(PaddockError):
        await box.write("out/../src/new.py", b"new")
    assert not (box.workspace / "src/new.py").exists()
    (denied,) = [event for event in await box.events("file.write") if event["decision"] == "deny"]
    assert denied["rule"] == "CTX-WRITE-001"
    assert denied["args"]["path"] == "/workspace/src/new.py"
    assert await missed(box) == 2 + FORKS
    assert CANARY not in str(await box.events())
    assert box.session.live
    await box.plane.sessions.close(TESTER, box.session, purge=False)


@pytest.mark.parametrize("how", ["terminal", "background", "storm"])
async def test_whatever_misses_first_ends_the_session(packed: Packed, how: str) -> None:
    box = await packed("high")
    with contextlib.suppress(PaddockError):
        await assert_says_no_secret(box, how)
    await assert_ended(box)


async def assert_says_no_secret(box: Box, how: str) -> None:
    """Lets the program read the unlisted file. Raises: PaddockError once the session has ended."""
    if how == "terminal":
        opened = await box.plane.terminals.open(TESTER, box.session, _prompt())
        exchange = await Tool(box, opened).do("src/secret.py")
        assert CANARY not in str(exchange)
        return
    command = await box.start(f"python3 programs/{how}.py", background=how == "background")
    ended = await box.finish(command)
    assert CANARY not in ended.stdout + ended.stderr


def _prompt() -> TerminalSpec:
    return spec(argv=("python3", "-I", "/workspace/programs/prompt.py"))
