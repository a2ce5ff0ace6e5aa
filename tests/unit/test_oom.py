"""The kernel's count of processes that it killed for memory."""

import pytest

from sandbox_agent import oom


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (b"low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 1\n", 2),
        (b"oom_kill_disable 0\nunder_oom 0\noom_kill 41\n", 41),
        (b"oom_kill_disable 1\nunder_oom 0\n", 0),
        (b"oom_kill many\n", 0),
        (b"", 0),
    ],
)
def test_both_versions_of_control_groups(text: bytes, count: int) -> None:
    assert oom.parse(text) == count


def test_the_first_counter_that_is_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("cgroup") / "memory.oom_control"
    monkeypatch.setattr(oom, "_COUNTERS", ("/absent/memory.events", str(path)))
    assert oom.kills() == 0
    path.write_text("oom_kill 7\n")
    assert oom.kills() == 7
