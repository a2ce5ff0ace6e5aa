"""Whose a loopback connection is: from the tables and the processes of the kernel."""

import os
import socket
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_agent.net.connection_owner import inode_of, name_of, program_of

HEADING = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n"
CONNECT = """
import socket, sys
family = socket.AF_INET6 if "::" in sys.argv[1] else socket.AF_INET
with socket.socket(family) as client:
    client.connect((sys.argv[1], int(sys.argv[2])))
    print(client.getsockname()[1], flush=True)
    sys.stdin.read()
"""


def line(local: str, remote: str, uid: int, inode: int) -> str:
    return f"   0: {local} {remote} 01 00000000:00000000 00:00000000 00000000 {uid} 0 {inode} 1\n"


def test_only_the_user_s_connection_is_found() -> None:
    table = HEADING + line("0100007F:0C38", "0100007F:9C40", 0, 7)
    table += line("0100007F:9C40", "0100007F:0C38", 1000, 8)
    assert inode_of(table, 40000, 3128, 1000) == 8
    assert inode_of(table, 40000, 3128, 1001) is None
    assert inode_of(table, 40001, 3128, 1000) is None
    assert inode_of(HEADING + line("0200007F:9C40", "0100007F:0C38", 1, 8), 40000, 3128, 1) is None
    mapped = "0000000000000000FFFF00000100007F"
    assert inode_of(HEADING + line(f"{mapped}:9C40", f"{mapped}:0C38", 1, 9), 40000, 3128, 1) == 9


@pytest.mark.parametrize(
    ("executable", "words", "name"),
    [
        ("/usr/bin/curl", ["curl", "-s"], "curl"),
        ("/usr/bin/python3.11", ["python3", "/usr/bin/pip", "install", "x"], "pip"),
        ("/usr/bin/python3.11", ["python3", "-I", "/opt/tools/fetch.py"], "fetch.py"),
        ("/usr/bin/python3.11", ["python3", "-m", "pip", "install"], "pip"),
        ("/usr/bin/python3.11", ["python3", "-m", "http.client"], "http"),
        ("/usr/bin/python3.11", ["python3", "-c", "import x"], "python3.11"),
        ("/usr/bin/python3.11", ["python3"], "python3.11"),
        ("/usr/bin/python3.11", [], "python3.11"),
        ("/usr/bin/node", ["node", "/usr/bin/npm", "install"], "npm"),
        ("/usr/bin/node", ["npm install attrs"], "npm"),
        ("/usr/lib/git-core/git-remote-http", ["git-remote-http", "origin"], "git"),
        ("/usr/bin/python3.11", ["python3", "/x/git-remote-y"], "git"),
        ("/workspace/\x07", ["x"], None),
        ("/workspace/a b", ["x"], None),
        ("/" + "x" * 65, [], None),
        ("", [], None),
        ("/usr/bin/python3.11", [" "], "python3.11"),
    ],
)
def test_names(executable: str, words: list[str], name: str | None) -> None:
    assert name_of(executable, words) == name


@given(st.text(), st.lists(st.text()))
def test_any_words_give_a_short_name_or_none(executable: str, words: list[str]) -> None:
    for file in (executable, "/usr/bin/python3.11"):
        name = name_of(file, words)
        assert name is None or (name.isascii() and 0 < len(name) <= 64 and " " not in name)


@given(st.text())
def test_any_table_is_read(text: str) -> None:
    with suppress(ValueError):
        inode_of(text, 1, 2, 3)


@pytest.mark.parametrize("address", ["127.0.0.1", "::ffff:127.0.0.1"])
def test_a_real_connection_is_found(tmp_path: Path, address: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        child = subprocess.Popen(
            [sys.executable, "-c", CONNECT, address, str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        with child, closing(server.accept()[0]):
            assert child.stdin is not None
            assert child.stdout is not None
            own = int(child.stdout.readline())
            # As in a sandbox, where few processes are to be looked at in the time for it.
            for name in ("self", str(child.pid)):
                (tmp_path / name).symlink_to(f"/proc/{name}")
            proc = str(tmp_path)
            found = program_of(own, port, os.getuid(), proc)
            assert found == os.path.basename(os.path.realpath(sys.executable))
            assert program_of(own, port, os.getuid() + 1, proc) is None
            assert program_of(port, own, os.getuid(), proc) != ""
            child.stdin.close()
        assert program_of(own, port, os.getuid(), proc) is None
