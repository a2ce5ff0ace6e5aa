"""The compiled guard against plans that no agent sends, and guards that end at the worst moment."""

import errno
import json
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
GUARD = ROOT / "sandbox_agent" / "enforce" / "guards" / "guard.c"
FUZZ = ROOT / "tests" / "support" / "guard_fuzz.c"
COMPILER = ("gcc", "-std=gnu11", "-Wall", "-Wextra", "-Werror")
RELEASE = ("-O2", "-fstack-protector-strong", "-fPIE", "-static-pie")
SANITIZERS = ("-O1", "-Wno-unused-function", "-fsanitize=address,undefined")
# About a minute.
INPUTS = 5_000_000
FUZZ_SECONDS = 1200


def test_parsers_survive_whatever_comes(tmp_path: Path) -> None:
    program = tmp_path / "fuzz"
    compile_with = (*COMPILER, *SANITIZERS, "-fno-sanitize-recover=all")
    subprocess.run([*compile_with, "-o", program, FUZZ], check=True, timeout=PROGRAM_SECONDS)
    done = subprocess.run(
        [program, "1", str(INPUTS)], capture_output=True, text=True, timeout=FUZZ_SECONDS
    )
    assert done.returncode == 0, done.stderr
    plans, orders, _ = map(int, done.stdout.split())
    # Neither all nor none were accepted, so the inputs reach both sides of the checks.
    assert 0 < plans < INPUTS
    assert 0 < orders < INPUTS


@pytest.fixture(scope="module")
def said(sandbox_image: str, tmp_path_factory: pytest.TempPathFactory) -> Said:
    """What the guards of the driver reported."""
    program = tmp_path_factory.mktemp("guard") / "guard"
    subprocess.run([*COMPILER, *RELEASE, "-o", program, GUARD], check=True, timeout=PROGRAM_SECONDS)
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


def test_a_process_whose_guard_ends_before_it_may_execute_ends_too(
    said: Said,
) -> None:
    assert said["left"] == []
