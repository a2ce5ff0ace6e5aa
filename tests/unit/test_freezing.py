"""Freezes of file systems: thawed once, as soon as anything is stopped, whatever the copy does."""

import fcntl
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.ground.errors import ConflictError
from orchestrator.host.workspace import freezing
from orchestrator.host.workspace.freezing import Freezes, frozen
from tests.support.limits import WAIT_SECONDS

LATE = "it took too long"


class Disk:
    """Stands for the kernel."""

    def __init__(self) -> None:
        self.calls: list[int] = []
        self.during_freeze: Callable[[], object] = lambda: None
        self.thawed = threading.Event()

    def ioctl(self, _handle: int, request: int, _argument: int) -> int:
        if request == freezing._FREEZE:
            self.during_freeze()
        self.calls.append(request)
        if request == freezing._THAW:
            self.thawed.set()
        return 0


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    made = Disk()
    monkeypatch.setattr(fcntl, "ioctl", made.ioctl)
    return made


def thawed_once(disk: Disk) -> bool:
    return disk.calls == [freezing._FREEZE, freezing._THAW]


def test_it_is_thawed_after_the_block(disk: Disk, tmp_path: Path) -> None:
    with frozen(tmp_path, Freezes(), WAIT_SECONDS, LATE) as freeze:
        assert disk.calls == [freezing._FREEZE]
        freeze.check()
    assert thawed_once(disk)
    assert freeze.seconds == freeze.seconds > 0


def test_it_is_thawed_after_an_error(disk: Disk, tmp_path: Path) -> None:
    with (
        pytest.raises(RuntimeError, match="broken"),
        frozen(tmp_path, Freezes(), WAIT_SECONDS, LATE),
    ):
        raise RuntimeError("broken")
    assert thawed_once(disk)


def copy(
    directory: Path,
    freezes: Freezes,
    meanwhile: Callable[[], object],
    *,
    checked: bool = False,
    seconds: float = WAIT_SECONDS,
) -> None:
    """Something that hangs until `meanwhile` is over; `checked`: in the middle, too."""
    with frozen(directory, freezes, seconds, LATE) as freeze:
        meanwhile()
        if checked:
            freeze.check()
            pytest.fail("the copy would go on")


@pytest.mark.parametrize("checked", [True, False])
@pytest.mark.parametrize("end", [Freezes.end, Freezes.refuse])
def test_a_stop_thaws_it_while_the_copy_hangs(
    disk: Disk, tmp_path: Path, end: Callable[[Freezes], None], checked: bool
) -> None:
    freezes = Freezes()

    def stop() -> None:
        end(freezes)
        assert disk.thawed.wait(WAIT_SECONDS)

    with pytest.raises(ConflictError, match="something in the session was stopped"):
        copy(tmp_path, freezes, stop, checked=checked)
    assert thawed_once(disk)


def test_a_stop_while_the_kernel_freezes_it(disk: Disk, tmp_path: Path) -> None:
    freezes = Freezes()
    disk.during_freeze = freezes.end
    with pytest.raises(ConflictError, match="was stopped"):
        copy(tmp_path, freezes, lambda: disk.thawed.wait(WAIT_SECONDS))
    assert thawed_once(disk)


def test_a_copy_that_hangs_holds_nothing_for_longer(disk: Disk, tmp_path: Path) -> None:
    with pytest.raises(ConflictError, match=LATE):
        copy(tmp_path, Freezes(), lambda: disk.thawed.wait(WAIT_SECONDS), seconds=0.0)
    assert thawed_once(disk)


def test_nothing_is_frozen_where_all_is_being_stopped(disk: Disk, tmp_path: Path) -> None:
    freezes = Freezes()
    freezes.refuse()
    with (
        pytest.raises(ConflictError, match="is being stopped"),
        frozen(tmp_path, freezes, WAIT_SECONDS, LATE),
    ):
        pytest.fail("it is frozen")
    assert disk.calls == []
    freezes.allow()
    with frozen(tmp_path, freezes, WAIT_SECONDS, LATE):
        pass
    assert thawed_once(disk)


def test_a_disk_that_can_not_be_thawed_is_told(disk: Disk, tmp_path: Path) -> None:
    def ioctl(handle: int, request: int, argument: int) -> int:
        if request == freezing._THAW:
            raise OSError(5, "Input/output error")
        return disk.ioctl(handle, request, argument)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fcntl, "ioctl", ioctl)
        with (
            pytest.raises(OSError, match="Input/output error"),
            frozen(tmp_path, Freezes(), WAIT_SECONDS, LATE),
        ):
            pass
