"""The compiled guard against plans that no agent sends, and guards that end at the worst moment."""

import errno
import json
import os
import shutil
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import docker
import pytest

from sandbox_agent.enforce.guards.availability import PROGRAM
from tests.support import compiled_guard_driver
from tests.support.agent_code import AGENT_CODE
from tests.support.compiled_guard_driver import REFUSED
from tests.support.limits import PROGRAM_SECONDS

# The words of reports, by case.
Said = dict[str, Any]
ROOT = Path(__file__).parents[2]
GUARD = ROOT / "sandbox_agent" / "enforce" / "guards" / "guard"
PARSERS = (GUARD / "plan.c", GUARD / "beneath.c")
FUZZ = ROOT / "tests" / "support" / "guard_fuzz.c"
COMPILER = ("gcc", "-std=gnu11", "-Wall", "-Wextra", "-Werror")
SANITIZERS = ("-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
# Debian's names.
ARM = "aarch64-linux-gnu-gcc"
EMULATOR = "qemu-aarch64-static"
# About a quarter of a minute of the processor each.
INPUTS = 2_500_000
FUZZ_SECONDS = 900


def compiled(program: Path, *command: str) -> Path:
    """The parsers with what makes their inputs, compiled to that file."""
    subprocess.run([*command, "-o", program, FUZZ, *PARSERS], check=True, timeout=PROGRAM_SECONDS)
    return program


def fuzzed(inputs: int, directory: Path, *command: str | Path) -> list[int]:
    """How many plans, orders and operands were accepted, and what was read, of that many inputs.

    Operands are looked up among the files and links of the driver.
    """
    top = directory / "top"
    if not top.exists():
        compiled_guard_driver.lay_out(str(top))
    done = subprocess.run(
        [*command, "1", str(inputs)], cwd=top, capture_output=True, text=True, timeout=FUZZ_SECONDS
    )
    assert done.returncode == 0, done.stderr
    return list(map(int, done.stdout.split()))


# The machines of ARM have no sign in a `char`.
@pytest.mark.parametrize("sign", ["-fsigned-char", "-funsigned-char"])
def test_parsers_survive_whatever_comes(tmp_path: Path, sign: str) -> None:
    program = compiled(tmp_path / "fuzz", *COMPILER, *SANITIZERS, sign)
    plans, orders, operands, _ = fuzzed(INPUTS, tmp_path, program)
    # Neither all nor none were accepted, so the inputs reach both sides of the checks.
    assert 0 < plans < INPUTS
    assert 0 < orders < INPUTS
    assert 0 < operands < INPUTS // 16


@pytest.mark.skipif(shutil.which(ARM) is None, reason=f"there is no {ARM}")
def test_it_compiles_for_another_machine(tmp_path: Path) -> None:
    program = tmp_path / "guard"
    subprocess.run(
        ["sh", GUARD / "compile.sh", program],
        check=True,
        timeout=PROGRAM_SECONDS,
        env={**os.environ, "CC": ARM},
    )
    machine = int.from_bytes(program.read_bytes()[18:20], "little")
    assert machine == 183  # EM_AARCH64


@pytest.mark.skipif(
    shutil.which(ARM) is None or shutil.which(EMULATOR) is None,
    reason=f"there is no {ARM} or no {EMULATOR}",
)
def test_another_machine_reads_the_same(tmp_path: Path) -> None:
    here = compiled(tmp_path / "here", *COMPILER)
    there = compiled(tmp_path / "there", ARM, "-static", *COMPILER[1:])
    inputs = 20_000
    assert fuzzed(inputs, tmp_path, EMULATOR, there) == fuzzed(inputs, tmp_path, here)


@pytest.fixture(scope="module")
def said(sandbox_image: str, tmp_path_factory: pytest.TempPathFactory) -> Said:
    """What the guards of the driver reported."""
    program = tmp_path_factory.mktemp("guard") / "guard"
    subprocess.run(["sh", GUARD / "compile.sh", program], check=True, timeout=PROGRAM_SECONDS)
    source = Path(compiled_guard_driver.__file__).read_text()
    with closing(docker.APIClient(version="auto")) as client:
        container = client.create_container(
            sandbox_image,
            entrypoint=["python3", "-c", source],
            host_config=client.create_host_config(
                cap_drop=["ALL"],
                cap_add=["SETUID", "SETGID"],
                network_mode="none",
                security_opt=["no-new-privileges"],
                binds=[AGENT_CODE, f"{program}:{PROGRAM}:ro"],
            ),
        )
        try:
            client.start(container)
            status = client.wait(container, timeout=PROGRAM_SECONDS)["StatusCode"]
            assert status == 0, client.logs(container)
            return dict(json.loads(client.logs(container, stderr=False)))
        finally:
            client.remove_container(container, v=True, force=True)


@pytest.mark.parametrize("name", REFUSED)
def test_a_wrong_plan_is_refused_and_starts_nothing(said: Said, name: str) -> None:
    number = errno.E2BIG if name.startswith("too ") else errno.EINVAL
    assert said[name] == [["X0", str(number)], ["E0", "0", "0", "0", "0"]]


def test_both_guards_decide_alike_about_operands_and_directories(said: Said) -> None:
    in_c, in_python = said["in c"], said["in python"]
    assert in_c == in_python
    # And not all alike.
    assert {words[0][0][0] for words in dict(in_c).values()} == {"D", "E", "X"}


def test_a_guard_goes_on_after_wrong_plans(said: Said) -> None:
    ((word, cpu_us),) = said["then"]
    assert word == "E0"
    assert int(cpu_us) > 0


def test_without_room_for_a_process_its_program_is_not_executed(said: Said) -> None:
    failed, ended = said["no room"]
    assert failed == ["X3", str(errno.EAGAIN)]
    assert ended[0] == f"E{255 << 8}"


def test_without_memory_both_guards_say_so_and_go_on(said: Said) -> None:
    unstarted = [["X0", str(errno.ENOMEM)], ["E0", "0", "0", "0", "0"]]
    assert said["no memory in c"] == {
        "plan": unstarted,
        "words": unstarted,
        "program": [["X3", str(errno.ENOMEM)], [f"E{255 << 8}"]],
        "then": [["E0"]],
    }
    assert said["no memory in python"] == said["no memory in c"]


def test_without_memory_for_a_process_both_guards_say_so(said: Said) -> None:
    unstarted = [["X0", str(errno.ENOMEM)], ["E0", "0", "0", "0", "0"]]
    assert said["no process in c"] == said["no process in python"] == unstarted


def test_a_process_whose_guard_ends_before_it_may_execute_ends_too(
    said: Said,
) -> None:
    assert said["left"] == []
