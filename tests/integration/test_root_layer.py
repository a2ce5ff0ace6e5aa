"""The writable layer of root inside, on this host: its mounts, its size, and what a kill leaves."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.host.workspace import root_layer
from orchestrator.host.workspace.mounts import MountError, mounts_under
from orchestrator.state.directory import SandboxDirectory, left_over

UID = 1_900_000_123
OVER = "sha256:of-the-image"
SIZE = 64 * 1024 * 1024


@pytest.fixture
def layers(tmp_path: Path) -> list[str]:
    """Two layers of an image: the upper one has /etc/passwd, and the lower one, too."""
    for name in ("upper", "lower"):
        (tmp_path / name / "etc").mkdir(parents=True)
        (tmp_path / name / "etc/passwd").write_text(name)
    (tmp_path / "lower/usr").mkdir()
    (tmp_path / "lower/usr/program").write_text("lower")
    (tmp_path / "lower/usr/other").write_text("of the group mail")
    os.chown(tmp_path / "lower/usr/other", 0, 8)
    (tmp_path / "lower/bin").symlink_to("usr")
    return [str(tmp_path / name) for name in ("upper", "lower")]


def test_it_shows_the_image_as_the_users(tmp_path: Path, layers: list[str]) -> None:
    layer = tmp_path / "layer"
    try:
        assert root_layer.make(layer, layers, OVER, UID, SIZE) == ["/etc", "/usr"]
        usr, etc = (root_layer.covered(layer, path) for path in ("/usr", "/etc"))
        assert (etc / "passwd").read_text() == "upper"
        status = (usr / "program").stat()
        assert (status.st_uid, status.st_gid) == (UID, UID)
        status = (usr / "other").stat()
        assert (status.st_uid, status.st_gid) == (UID, 8)
        (usr / "program").write_text("changed")
        (usr / "other").unlink()
        assert os.statvfs(usr).f_flag & (os.ST_NOSUID | os.ST_NODEV) == os.ST_NOSUID | os.ST_NODEV
        assert os.statvfs(usr).f_blocks * os.statvfs(usr).f_frsize <= SIZE
        assert mounts_under(str(layer / "lower")) == []
        assert (tmp_path / "lower/usr/program").read_text() == "lower"
        assert (tmp_path / "lower/usr/other").read_text() == "of the group mail"
    finally:
        root_layer.remove(layer)
    assert not layer.exists()
    assert mounts_under(str(tmp_path)) == []


def test_what_a_killed_process_left_is_removed(tmp_path: Path, layers: list[str]) -> None:
    directory = SandboxDirectory(tmp_path / "state/sandboxes/0123456789abcdef")
    directory.path.parent.mkdir(parents=True)
    directory.make()
    script = (
        "import os, signal, sys; from pathlib import Path;"
        "from orchestrator.state.directory import SandboxDirectory;"
        f"SandboxDirectory(Path(sys.argv[1])).make_layer(sys.argv[2:], {OVER!r}, {UID}, {SIZE});"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", script, str(directory.path), *layers], check=False)
    assert done.returncode == -9
    assert mounts_under(str(tmp_path))
    (found,) = left_over(tmp_path / "state")
    found.release()
    assert mounts_under(str(tmp_path)) == []
    assert not directory.path.exists()


@pytest.mark.parametrize(
    ("layers", "told"),
    [
        ([], "the storage driver overlay2 does"),
        (["/none/such"], "not visible to the control plane"),
    ],
)
def test_why_there_is_none(tmp_path: Path, layers: list[str], told: str) -> None:
    with pytest.raises(MountError, match=told):
        root_layer.make(tmp_path / "layer", layers, OVER, UID, SIZE)
    refused = root_layer.refusal(tmp_path / "layer", layers)
    assert refused is not None
    assert told in refused
    assert mounts_under(str(tmp_path)) == []
    assert list(tmp_path.iterdir()) == []
