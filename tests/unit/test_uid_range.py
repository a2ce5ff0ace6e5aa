"""The ranges of uids that control planes on one machine take."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.ground.check import CheckStatus
from orchestrator.ground.config_error import ConfigError
from orchestrator.host.workspace.uid_range import UidRange, candidates, claim, is_free
from orchestrator.operate.checks.uids import check_uids, range_check
from orchestrator.settings.groups.capacity import FIRST_UID
from orchestrator.settings.settings import Settings

COUNT = 1000
# Takes a range in another process, says so, and waits.
HOLDER = """
import sys
from pathlib import Path
from orchestrator.host.workspace.uid_range import claim
taken = claim(int(sys.argv[2]), 1000, "0", [], Path(sys.argv[1]))
print("taken", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def locks(tmp_path: Path) -> Path:
    return tmp_path / "locks"


def test_two_instances_get_different_ranges(locks: Path) -> None:
    """Also of one process, and also those that prefer the same."""
    one, two = (claim(None, COUNT, "0000002a", [], locks) for _ in range(2))
    assert (one.base, two.base) == (FIRST_UID + 42 * COUNT, FIRST_UID + 43 * COUNT)
    one.close()
    # Its uids are free again, for whoever comes next.
    again = claim(None, COUNT, "0000002a", [], locks)
    assert again.base == one.base
    for each in (two, again):
        each.close()


def test_a_range_that_another_uses_is_refused_with_its_setting(locks: Path) -> None:
    one = claim(FIRST_UID + 500, COUNT, "0", [], locks)
    for base in (FIRST_UID, FIRST_UID + 500, FIRST_UID + 1499):
        assert not is_free(base, COUNT, locks)
        with pytest.raises(ConfigError, match="PADDOCK_UID_BASE: another control plane"):
            claim(base, COUNT, "0", [], locks)
    claim(FIRST_UID + 1500, COUNT, "0", [], locks).close()
    # What is chosen lies beside it.
    chosen = claim(None, COUNT, "0", [], locks)
    assert chosen.base == FIRST_UID + 2 * COUNT
    for each in (one, chosen):
        each.close()
    assert is_free(FIRST_UID, 10 * COUNT, locks)


def test_a_killed_instance_leaves_its_range(locks: Path) -> None:
    words = [sys.executable, "-c", HOLDER, str(locks), str(FIRST_UID)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"taken\n"
        assert not is_free(FIRST_UID, COUNT, locks)
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
        assert is_free(FIRST_UID, COUNT, locks)


def test_earlier_workspaces_keep_their_uids_and_hold_them(locks: Path) -> None:
    kept = [FIRST_UID + 1, FIRST_UID + 2, FIRST_UID + 42 * COUNT]
    one = claim(None, COUNT, "2a", kept, locks)
    assert (one.base, one.shared) == (FIRST_UID + 42 * COUNT, 0)
    assert not is_free(FIRST_UID + 2, 1, locks)
    copied = claim(None, COUNT, "2a", kept, locks)
    assert (copied.base, copied.shared) == (FIRST_UID + 43 * COUNT, 3)
    assert "3 earlier workspaces" in range_check(copied).detail
    assert range_check(copied).status is CheckStatus.WARNING
    assert range_check(one).status is CheckStatus.OK
    for each in (one, copied):
        each.close()


def test_where_nothing_can_be_locked_the_range_is_told_as_a_warning(tmp_path: Path) -> None:
    taken = claim(None, COUNT, "2a", [], tmp_path / "absent" / "locks")
    assert (taken.base, taken.descriptor) == (FIRST_UID + 42 * COUNT, None)
    assert range_check(taken).status is CheckStatus.WARNING
    taken.close()


def test_all_ranges_are_within_the_kernel_s_numbers() -> None:
    for count in (1, 65_536, 10**6, 200_000_000, 2**31):
        found = candidates(count, "ffffffff")
        assert len(found) == len(set(found)) <= 1000
        assert min(found) == FIRST_UID
        assert len(found) == 1 or max(found) + count <= 1 << 31


def test_the_doctor_names_the_setting(
    locks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "orchestrator.operate.checks.uids.is_free", lambda base, count: is_free(base, count, locks)
    )
    settings = Settings(state_dir=tmp_path, uid_base=FIRST_UID, uid_count=COUNT)
    assert check_uids(settings).status is CheckStatus.OK
    other: UidRange = claim(FIRST_UID, COUNT, "0", [], locks)
    check = check_uids(settings)
    assert check.status is CheckStatus.FAILURE
    assert "PADDOCK_UID_BASE" in str(check.remedy)
    other.close()
