"""Reads outside a session's manifest: no process gets a byte, and each attempt is reported."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import docker
import pytest

from tests.support import reading

PROGRAMS = Path(__file__).with_name("programs")
CANARY = "CANARY-5d0f"
NFC, NFD = "caf\u00e9", "cafe\u0301"
FILES = {
    "listed": "LISTED",
    "secret": CANARY,
    "sub/listed.py": "print('imported')\n",
    "sub/hidden.py": f"TEXT = '{CANARY}'\n",
    "sub/inner/file": CANARY,
    "script": f"#!/bin/sh\necho {CANARY}\n",
    NFC: "NFC",
    NFD: CANARY,
}
LINKS = {"symlink": "secret", "up": "."}
HARD = {"hardlink": "secret"}
GIVEN = {
    "level": "high",
    "mode": "soft_fail",
    "files": FILES,
    "links": LINKS,
    "hard": HARD,
    "entries": ["listed", "sub/listed.py", NFC],
    "directories": [".", "sub"],
    "writes": ["out"],
}
Run = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def run(sandbox_image: str) -> Iterator[Run]:
    """Runs commands in a session with that manifest."""
    with closing(docker.APIClient(version="auto")) as client:

        def start(*commands: list[str], **members: Any) -> dict[str, Any]:
            given = {**GIVEN, **members, "commands": commands}
            found = reading.run(client, sandbox_image, given)
            assert CANARY not in json.dumps(found)
            return found

        yield start


def python(name: str, *arguments: str) -> list[str]:
    """A program as one word, because nothing of it is in the manifest."""
    return ["python3", "-c", (PROGRAMS / name).read_text(), *arguments]


def misses(found: dict[str, Any], number: int = 0) -> list[dict[str, Any]]:
    """The arguments of the misses that were reported of that command."""
    events = [event for event in found["reads"] if event["command_id"] == f"c{number}"]
    assert all(event["rule"] == "CTX-ALLOWLIST-001" for event in events)
    return [event["args"] for event in events]


def counted(found: dict[str, Any], number: int = 0) -> int:
    return sum(args.get("repeats", 1) for args in misses(found, number))


def test_no_way_to_an_unlisted_file_gives_a_byte_and_each_is_reported(run: Run) -> None:
    found = run(python("misses.py", "missed"), python("misses.py", "refused"))
    exit_code, printed = found["outcomes"][0]
    attempts = dict(line.split(": ", 1) for line in printed.splitlines())
    assert exit_code == 0, printed
    assert set(attempts.values()) <= {"'13'", "'2'", "'exit 1'"}, printed
    assert attempts["absent"] == "'2'"
    # One each; the child that `cat` runs in is the attempt's only reader.
    assert counted(found) == len(attempts), (printed, misses(found))
    assert {args["manifest_id"] for args in misses(found)} == {"manifest"}
    first = misses(found)[0]
    assert first["path"] == "/workspace/secret"
    assert (first["syscall"], first["program"]) == ("openat", "/usr/bin/python3.11")
    assert first["pid"] > 1
    assert {event["decision"] for event in found["reads"]} == {"deny"}
    exit_code, printed = found["outcomes"][1]
    assert exit_code == 0, printed


@pytest.mark.parametrize("how", ["memory", "rename"])
def test_a_path_that_changes_all_the_time_leaks_nothing_unreported(run: Run, how: str) -> None:
    found = run(python("flips.py", how, "1500"))
    exit_code, printed = found["outcomes"][0]
    assert exit_code == 0, printed
    result = json.loads(printed)
    assert result["opens"] == 1500
    assert result["leaked"] == 0
    assert result["listed"], result
    assert result["denied"], result
    assert counted(found) == result["denied"], result


def test_programs_that_keep_to_the_manifest_miss_nothing(run: Run) -> None:
    script = """
        cat listed - < listed; cat <(echo piped); mkfifo /tmp/fifo
        (echo through > /tmp/fifo) & cat /tmp/fifo; wait
        umask 027; python3 - <<'END'
import json, os, sqlite3, ssl, subprocess, sys, tempfile
sys.path.insert(0, "/workspace/sub")
import listed
fd = os.open("/tmp/made", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
print(oct(os.fstat(fd).st_mode), os.get_blocking(fd), os.get_inheritable(fd))
sub = os.open("sub", os.O_RDONLY | os.O_DIRECTORY)
print(sorted(os.listdir(sub)), len(open(os.open("listed.py", os.O_RDONLY, dir_fd=sub)).read()))
with tempfile.TemporaryFile() as file:
    file.write(b"kept")
    file.seek(0)
    print(file.read(), open(f"/proc/self/fd/{file.fileno()}").read())
sqlite3.connect("/tmp/base").execute("create table t (a)")
open("/workspace/out/new", "w").write("new")
print(open("/dev/zero", "rb").read(1), subprocess.run(["true"]).returncode)
print(open("/proc/self/stat").read().split()[0] == str(os.getpid()))
try:
    open("/workspace/sub/absent.py")
except FileNotFoundError:
    print("absent")
END
    """
    found = run(["bash", "-c", script])
    exit_code, printed = found["outcomes"][0]
    assert exit_code == 0, printed
    assert printed.splitlines() == [
        "LISTEDLISTEDpiped",
        "through",
        "imported",
        "0o100640 True False",
        "['hidden.py', 'inner', 'listed.py'] 18",
        "b'kept' kept",
        "b'\\x00' 0",
        "True",
        "absent",
    ]
    assert found["reads"] == []


def test_a_compiled_file_beside_a_listed_source_is_missed_unless_there_is_a_cache(run: Run) -> None:
    compiled = "sub/__pycache__/listed.cpython-311.pyc"
    imports = ["python3", "-c", "import sys; sys.path.insert(0, 'sub'); import listed"]
    cached = ["env", "PYTHONPYCACHEPREFIX=/tmp/cache", *imports]
    found = run(imports, cached, files={**FILES, compiled: CANARY})
    assert found["outcomes"] == [[0, "imported\n"]] * 2
    assert [args["path"] for args in misses(found)] == [f"/workspace/{compiled}"]
    assert misses(found, 1) == []


def test_the_programs_of_a_level_need_no_more_than_their_baseline(run: Run) -> None:
    found = run(
        ["cat", "listed"],
        ["ls", "-la", "."],
        ["grep", "-r", "LISTED", "listed"],
        ["find", ".", "-maxdepth", "1"],
        ["head", "secret"],
        level="low",
    )
    assert [code for code, _ in found["outcomes"]] == [0, 0, 0, 0, 1]
    assert {args["path"] for args in misses(found, 0)} == set()
    assert [event["command_id"] for event in found["reads"]] == ["c4"]


def test_a_loop_of_misses_is_counted(run: Run) -> None:
    script = "import os\nfor _ in range(2000):\n try: open('secret')\n except OSError: pass"
    found = run(["python3", "-c", script], ["cat", "listed"])
    assert counted(found) == 2000
    assert 2 <= len(misses(found)) < 60
    assert found["outcomes"][1] == [0, "LISTED"]


def test_a_commands_own_program_is_missed_too(run: Run) -> None:
    found = run(["./script"], ["/workspace/sub/hidden.py"], ["./listed"], ["/usr/bin/nothing"])
    assert [code for code, _ in found["outcomes"]] == [126, 126, 126, 127]
    assert [args["path"] for args in misses(found)] == ["/workspace/script"]
    assert [args["path"] for args in misses(found, 1)] == ["/workspace/sub/hidden.py"]
    assert misses(found, 2) == misses(found, 3) == []


def test_no_command_gets_a_guard_whose_broker_ends(run: Run) -> None:
    """A broker ends with a command whose threads still wait for a FIFO's writer."""
    script = """
import os, threading, time
os.mkfifo(f"/tmp/{os.getpid()}")
threading.Thread(target=os.open, args=(f"/tmp/{os.getpid()}", os.O_RDONLY), daemon=True).start()
while open("/proc/self/status").read().count("Threads:\\t2") == 0: pass
for _ in range(50): open("listed").close()
os._exit(0)
"""
    found = run(*([["python3", "-c", script], ["cat", "listed"]] * 8))
    assert found["outcomes"] == [[0, ""], [0, "LISTED"]] * 8


def test_a_manifest_that_only_warns_lets_reads_pass(run: Run) -> None:
    found = run(["sh", "-c", "wc -c < secret; cat listed"], mode="warn")
    assert found["outcomes"] == [[0, f"{len(CANARY)}\nLISTED"]]
    assert [args["path"] for args in misses(found)] == ["/workspace/secret"]
    assert found["reads"][0]["decision"] == "allow"


def test_nothing_can_be_opened_once_the_broker_is_gone(run: Run) -> None:
    script = (
        "import time\nprint('up', flush=True)\n"
        "while True:\n"
        " try: open('listed').close()\n"
        " except OSError as error: print(error.errno); break\n"
        "try: print(open('secret').read())\n"
        "except OSError as error: print(error.errno)"
    )
    found = run(["python3", "-c", script], ["cat", "listed"], broker_killed=True)
    assert found["outcomes"] == [[0, "up\n38\n38\n"], [0, "LISTED"]]


def test_one_command_that_blocks_its_broker_delays_no_other(run: Run) -> None:
    """FIFOs without writers, more than may be waited for; hidden memory; a storm of signals."""
    script = """
import ctypes, os, signal, threading
os.mkfifo("/tmp/fifo")
results = []
def wait():
    try: os.open("/tmp/fifo", os.O_RDONLY)
    except OSError as error: results.append(error.errno)
threads = [threading.Thread(target=wait, daemon=True) for _ in range(20)]
for thread in threads: thread.start()
while len(results) < 4: os.sched_yield()
print(sorted(results), open("listed").read())
signal.signal(signal.SIGALRM, lambda *_: None)
signal.setitimer(signal.ITIMER_REAL, 0.0002, 0.0002)
print({open("listed").read() for _ in range(500)})
signal.setitimer(signal.ITIMER_REAL, 0)
ctypes.CDLL(None).prctl(4, 0)
try: open("listed")
except OSError as error: print(error.errno, flush=True)
os._exit(0)
"""
    found = run(["python3", "-c", script], ["cat", "listed"])
    assert found["outcomes"] == [
        [0, "[24, 24, 24, 24] LISTED\n{'LISTED'}\n13\n"],
        [0, "LISTED"],
    ]
    assert [args["path"] for args in misses(found)] == ["listed"]


def test_a_process_that_is_killed_while_it_opens_a_listed_file_misses_nothing(run: Run) -> None:
    """The kernel hides its memory and its descriptors before it is gone."""
    script = """
import os, signal
for _ in range(600):
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        directory = os.open("/workspace/sub", os.O_RDONLY)
        os.write(write, b"1")
        while True:
            os.close(os.open("/workspace/listed", os.O_RDONLY))
            os.close(os.open("listed.py", os.O_RDONLY, dir_fd=directory))
    os.read(read, 1)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(read); os.close(write)
"""
    found = run(["python3", "-c", script])
    assert found["outcomes"][0][0] == 0, found["outcomes"][0][1]
    assert misses(found) == []
