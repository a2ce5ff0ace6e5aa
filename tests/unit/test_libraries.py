"""The files that programs need, compared with the result of this machine's loader."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from sandbox_agent.enforce.libraries import Libraries, Needs, elf_needs


def listed_by_the_loader(program: str) -> set[str]:
    said = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    return {os.path.realpath(path) for path in re.findall(r"(?:=> |\t)(/\S+)", said)}


@pytest.mark.parametrize("program", ["/bin/ls", "/bin/grep", "/usr/bin/curl", "/bin/bash"])
def test_all_that_the_loader_would_load(program: str) -> None:
    if not Path(program).exists():
        program = "/bin/cp"
    libraries = Libraries()
    libraries.add(program)
    closure = libraries.closure
    assert listed_by_the_loader(program) <= closure.read
    assert os.path.realpath(program) in closure.executed
    assert any("ld-" in path for path in closure.executed)
    assert not any(".so." in path and "ld-" not in path for path in closure.executed)


def test_a_script_needs_its_interpreter(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/bin/sh -e\nexit 0\n")
    libraries = Libraries()
    libraries.add(str(script))
    assert {str(script), os.path.realpath("/bin/sh")} <= libraries.closure.executed


def test_a_script_may_have_its_interpreter_looked_up(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/usr/bin/env bash\n")
    libraries = Libraries()
    libraries.add(str(script))
    assert {os.path.realpath("/bin/bash"), "/usr/bin/env"} <= libraries.closure.executed


def test_scripts_that_interpret_each_other_end(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text(f"#!{script}\n")
    libraries = Libraries()
    libraries.add(str(script))
    assert libraries.closure.executed == {str(script)}


@pytest.mark.parametrize(
    "content", [b"", b"\x7fELF", b"\x7fELF\x02\x01" + b"\0" * 58, b"\x7fELF\x02\x01" + b"\xff" * 99]
)
def test_what_is_cut_short_needs_nothing(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "odd"
    path.write_bytes(content)
    with path.open("rb") as file:
        assert elf_needs(file.fileno(), str(tmp_path)) == Needs(None, [], [])


def test_a_program_that_is_not_there_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        Libraries().add("/nothing/here")


def test_a_program_that_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "program"
    os.mkfifo(pipe, 0o755)
    libraries = Libraries()
    libraries.add(str(pipe))
    assert libraries.closure.executed == {str(pipe)}


def test_a_table_of_headers_that_are_none_is_not_read(tmp_path: Path) -> None:
    program = tmp_path / "program"
    header = bytearray(b"\x7fELF\x02\x01".ljust(64, b"\0"))
    header[54:58] = b"\xff" * 4  # entries and their size: four gigabytes
    program.write_bytes(header)
    libraries = Libraries()
    libraries.add(str(program))
    assert libraries.closure.read == {str(program)}
