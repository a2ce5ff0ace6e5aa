"""Where volumes may be, and which words of commands may lead into them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.ground.errors import ValidationError
from orchestrator.host.workspace.id_map import namespace
from orchestrator.sandbox.volumes.volume_paths import check_uses, refusal
from orchestrator.state.terms import Terms
from orchestrator.state.volume_use import VolumeUse
from sandbox_agent.decide.commands import decide, paths_to_resolve
from sandbox_agent.enforce.command_process import _first_escaping

LISTED = frozenset({"cat", "cp", "mv", "rm", "mkdir", "ls", "find", "tail", "touch"})
VOLUMES = ("/data/kept", "/mnt/read")
WRITABLE = ("/data/kept",)


@pytest.mark.parametrize("path", ["/data", "/data/a", "/mnt/x", "/srv/www", "/varnish", "/home/a"])
def test_places_that_a_volume_may_have(path: str) -> None:
    assert refusal(path) is None


@pytest.mark.parametrize(
    "path",
    [
        *("", "data", "./data", "/", "//", "//data", "/data/", "/data//a", "/data/./a", "/data/.."),
        *("/usr", "/usr/local/x", "/bin", "/lib64/x", "/etc/x", "/proc/1", "/sys", "/dev/shm"),
        *("/run/paddock", "/tmp/x", "/var/lib/x", "/opt/paddock", "/opt/x", "/root", "/workspace"),
        *("/workspace/x", "/.hidden", "/.dockerenv", "/data a", "/data/\n", "/data/ä", "/data\0"),
        f"/data/{'x' * 256}",
    ],
)
def test_places_that_it_may_not_have(path: str) -> None:
    assert refusal(path) is not None


@given(st.text(max_size=40))
def test_a_permitted_path_is_what_it_says(text: str) -> None:
    path = f"/{text}"
    if refusal(path) is None:
        assert os.path.normpath(path) == path
        assert not {"..", "."} & set(path.split("/"))
        assert path.isascii()


def test_no_two_at_one_place() -> None:
    first = VolumeUse("a", "/data/a")
    check_uses([first, VolumeUse("b", "/data/ab"), VolumeUse("c", "/srv")], ["/mnt/list"])
    for other, taken in (
        (VolumeUse("a", "/srv"), ()),
        (VolumeUse("b", "/data/a"), ()),
        (VolumeUse("b", "/data"), ()),
        (VolumeUse("b", "/data/a/b"), ()),
        (VolumeUse("b", "/srv/tools"), ("/srv",)),
        (VolumeUse("b", "/srv"), ("/srv/tools",)),
    ):
        with pytest.raises(ValidationError) as refused:
            check_uses([first, other], taken)
        assert refused.value.fields["field"] == "volumes"


def test_terms_are_stored_and_restored() -> None:
    terms = Terms(volumes=(VolumeUse("a", "/data/a", read_only=True),))
    assert Terms.restored(terms.stored()) == terms
    assert Terms.restored({}).volumes == ()


@pytest.mark.parametrize(
    "line",
    [
        *("cat /data/kept/a", "cat /mnt/read/a", "ls /data/kept", "rm /data/kept/a"),
        *("cp a /data/kept/", "cp /mnt/read/a b", "mv /data/kept/a b", "cat /data/kept/./x/../a"),
    ],
)
def test_words_that_may_lead_into_a_volume(line: str) -> None:
    words = line.split()
    assert decide(words, LISTED, mounts=WRITABLE, volumes=VOLUMES).allow
    assert not decide(words, LISTED).allow


@pytest.mark.parametrize(
    "line",
    [
        *("cp a /mnt/read/", "rm /mnt/read/a", "mv /mnt/read/a b", "touch /mnt/read/a"),
        *("cat /data/keptx", "cat /data", "cat /data/kept/../other", "ls /data/kept/.."),
        *(
            "cat /data/kept/../../etc/passwd",
            "cat ../data/kept/../../etc/passwd",
            "cat /etc/passwd",
        ),
    ],
)
def test_words_that_may_not(line: str) -> None:
    decision = decide(line.split(), LISTED, mounts=WRITABLE, volumes=VOLUMES)
    assert decision.rule == "path-outside-workspace"


def test_links_in_a_volume_stay_in_it(tmp_path: Path) -> None:
    work, volume = tmp_path / "workspace", tmp_path / "volume"
    for directory in (work, volume, volume / "d"):
        directory.mkdir()
    (volume / "file").write_text("x")
    (tmp_path / "secret").write_text("x")
    for name, target in (
        ("good", "file"),
        ("d/good", "../file"),
        ("up", ".."),
        ("absolute", f"{tmp_path}/secret"),
        ("itself", f"{volume}/file"),
        ("dangling", "new/../../secret"),
    ):
        (volume / name).symlink_to(target)
    handle = os.open(work, os.O_PATH | os.O_DIRECTORY)
    try:

        def escapes(name: str) -> bool:
            words = ["cat", f"{volume}/{name}"]
            inside = paths_to_resolve(words, LISTED, str(work), str(work))
            return _first_escaping(handle, inside, None, [str(volume)]) is not None

        for name in ("file", "good", "d/good", "missing", "."):
            assert not escapes(name), name
        for name in ("up/secret", "absolute", "dangling", "itself"):
            assert escapes(name), name
    finally:
        os.close(handle)


def test_a_namespace_maps_one_user_and_leaves_no_process() -> None:
    with namespace({1_900_000_001: 1_900_000_002}) as handle:
        shown = subprocess.run(
            [sys.executable, "-c", f"import os; print(os.readlink('/proc/self/fd/{handle}'))"],
            pass_fds=[handle],
            capture_output=True,
            text=True,
            check=True,
        )
        assert shown.stdout.startswith("user:[")
        assert os.readlink("/proc/self/ns/user") != shown.stdout.strip()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(handle)
