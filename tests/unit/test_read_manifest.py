"""What a session that is limited to a pack may use, by path: default deny."""

import errno
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_agent.decide.manifest import Consume, ReadManifest
from sandbox_agent.decide.protocol import Configuration, Confinement
from sandbox_agent.enforce.landlock import CHANGE, EXECUTE, READ, READ_DIR, READ_FILE, Rule
from sandbox_agent.enforce.profile import NO_TOOL, consume_rules
from sandbox_agent.enforce.reads import pack_files
from sandbox_agent.enforce.reads.pack_files import Held

PACK = Consume(
    manifest_id="pack-1",
    entries=("src/main.py", "README.md"),
    directories=(".", "src"),
    writes=("out", "src/new.py"),
    baseline=("/usr/lib", "/etc/hosts"),
    firewall_mode="hard_fail",
)
NOTHING = Consume("empty", (), (), (), (), "hard_fail")
MANIFEST = ReadManifest(PACK, programs=["/usr/bin/cat"])


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/workspace/src/main.py", True),
        ("/workspace//src/./main.py", True),
        ("/workspace/src/../src/main.py", True),
        ("//workspace/README.md", True),
        ("/workspace/src/main.py/", True),
        ("/workspace/src/other.py", False),
        ("/workspace/src", False),
        ("/workspace/src/main.pyc", False),
        ("/workspace/SRC/main.py", False),
        ("/workspace/src/main.py/x", False),
        ("/workspace/out/written", False),
        ("src/main.py", False),
        ("", False),
        ("/workspace/src/main.py\0", False),
        ("/workspace", False),
        ("/", False),
        ("/usr/lib/python3/os.py", True),
        ("/usr/library", False),
        ("/usr/lib/../../workspace/secret", False),
        ("/etc/hosts", True),
        ("/etc/shadow", False),
        ("/usr/bin/cat", True),
        ("/usr/bin/python3", False),
        ("/tmp/own", True),
        ("/proc/self/root/workspace/secret", False),
    ],
)
def test_files(path: str, allowed: bool) -> None:
    assert MANIFEST.may_read(path) is allowed
    assert MANIFEST.may_execute(path) is allowed


def test_two_spellings_of_a_character_are_two_names() -> None:
    manifest = ReadManifest(PACK._replace(entries=("caf\u00e9",)))
    assert manifest.may_read("/workspace/caf\u00e9")
    assert not manifest.may_read("/workspace/cafe\u0301")


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/workspace", True),
        ("/workspace/src", True),
        ("/workspace/src/lib", False),
        ("/workspace/secret", False),
        ("/workspace/out/deep", True),
        ("/usr/lib/x", True),
        ("/tmp", True),
        ("/", False),
    ],
)
def test_directories(path: str, allowed: bool) -> None:
    assert MANIFEST.may_list(path) is allowed


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/workspace/out", True),
        ("/workspace/out/a/b", True),
        ("/workspace/out/../src/main.py", False),
        ("/workspace/outside", False),
        ("/workspace/src/new.py", True),
        ("/workspace/src/main.py", False),
        ("/tmp/x", True),
        ("/etc/hosts", False),
        ("/usr/lib/x", False),
    ],
)
def test_writing(path: str, allowed: bool) -> None:
    assert MANIFEST.may_write(path) is allowed


@given(st.text(alphabet="/.ab\0é", max_size=12))
def test_an_empty_manifest_permits_nothing_of_the_workspace(text: str) -> None:
    manifest = ReadManifest(NOTHING)
    for path in (text, f"/workspace/{text}"):
        inside = os.path.normpath(path).lstrip("/").split("/")[0] == "workspace"
        if inside or not path.startswith("/"):
            assert not manifest.may_read(path)
            assert not manifest.may_list(path)
            assert not manifest.may_write(path)


def test_a_baseline_never_reaches_into_the_workspace() -> None:
    manifest = ReadManifest(NOTHING._replace(baseline=("/", "/workspace")))
    assert not manifest.may_read("/workspace/a")
    assert manifest.may_read("/opt/a")


def configured(*, paths: bool) -> Configuration:
    return Configuration(
        level="low",
        uid=1_900_000_000,
        commands=["cat"] if paths else None,
        environment=[],
        confinement=Confinement(
            paths, ["/mnt/data", "/workspace/x"], ["/"], True, ptrace=False, record_execs=True
        ),
        home="/nonexistent",
        cpus=1.0,
        memory_bytes=2**28,
        processes=32,
        output_bytes=2**20,
        max_running=16,
        writable=("/mnt/data",),
        consume=PACK,
    )


@pytest.mark.parametrize("paths", [True, False])
def test_no_rule_by_path_reaches_the_workspace(paths: bool) -> None:
    tool = NO_TOOL._replace(read=["/workspace"], write=["/", "/workspace/a"])
    rules, executable = consume_rules(configured(paths=paths), PACK, tool)
    reached = [rule for rule in rules if rule.path == "/" or rule.path.startswith("/workspace")]
    assert reached == []
    assert Rule("/tmp", CHANGE) in rules
    assert Rule("/mnt/data", CHANGE) not in rules
    assert (Rule("/usr/lib", READ | EXECUTE) in rules) is not paths
    assert (executable is None) is not paths


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("seteuid", "setegid"):
        monkeypatch.setattr(os, name, lambda _id: None)
    (tmp_path / "src").mkdir()
    for name in ("src/main.py", "src/secret.py", "secret"):
        (tmp_path / name).write_text(name)
    return tmp_path


def granted(tree: Path, held: Held | None = None, **members: Any) -> dict[str, int]:
    """The rights by path relative to the workspace."""
    consume = NOTHING._replace(**members)
    found = {}
    for item in pack_files.opened(
        consume, os.getuid(), executable=False, workspace=str(tree), held=held
    ):
        found[os.path.relpath(os.readlink(f"/proc/self/fd/{item.fd}"), tree)] = item.access
        os.close(item.fd)
    return found


def test_entries_and_directories_get_their_own_rights(tree: Path) -> None:
    given_ = granted(tree, entries=("src/main.py", "missing"), directories=(".", "src"))
    assert given_ == {"src/main.py": READ_FILE, ".": READ_DIR, "src": READ_DIR}


def test_an_entry_that_is_no_file_grants_nothing(tree: Path) -> None:
    (tree / "link").symlink_to("secret")
    (tree / "way").symlink_to("src")
    os.mkfifo(tree / "pipe")
    assert granted(tree, entries=("src", "link", "way/secret.py", "pipe", "../x")) == {}
    assert granted(tree, directories=("secret", "way")) == {}


def test_what_takes_an_entry_s_place_later_grants_nothing(tree: Path) -> None:
    held: Held = {}
    entries = ("src/main.py", "secret", "missing")
    assert set(granted(tree, held, entries=entries)) == set(held) == {"src/main.py", "secret"}
    assert granted(tree, held, entries=entries).keys() == held.keys()
    (tree / "src/secret.py").rename(tree / "secret")
    (tree / "missing").write_text("new")
    assert set(granted(tree, held, entries=entries)) == {"src/main.py"}


def test_written_directories_are_created_and_can_not_be_read(tree: Path) -> None:
    given_ = granted(tree, writes=("out/deep", "src/main.py"))
    assert set(given_) == {"out/deep", "src/main.py"}
    assert not any(access & READ_FILE for access in given_.values())
    assert stat.S_ISDIR((tree / "out/deep").stat().st_mode)


def test_a_link_is_not_followed_to_create_a_directory(tree: Path) -> None:
    (tree / "way").symlink_to("src")
    with pytest.raises(OSError, match=os.strerror(errno.ELOOP)):
        granted(tree, writes=("way/new",))
    assert not (tree / "src/new").exists()
