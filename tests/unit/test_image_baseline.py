"""The file that names what programs of an image look for besides a manifest."""

from pathlib import Path

import pytest

from sandbox_agent.enforce.reads.image_baseline import PACKAGED, BaselineError, load


def test_the_packaged_one_is_read() -> None:
    found = load(PACKAGED, "/nonexistent/baseline.toml")
    assert found.read == ("/etc/python3.11", "/opt/paddock")
    assert "/proc/self" in found.refused
    assert "/usr" in found.absent
    # What is refused is neither read nor looked for in vain.
    assert not set(found.refused) & {*found.read, *found.absent}


def test_an_operator_adds_to_it(tmp_path: Path) -> None:
    added = tmp_path / "baseline.toml"
    added.write_text('read = ["/opt/model"]\nabsent = ["/srv"]\n')
    found = load(PACKAGED, str(added))
    assert found.read[-1] == "/opt/model"
    assert found.absent[-1] == "/srv"
    assert found.refused == load(PACKAGED, "/nonexistent").refused


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("read = 1", "read must be"),
        ('read = ["relative"]', "read must be"),
        ('read = ["/"]', "read must be"),
        ('read = ["//"]', "read must be"),
        ('read = ["/a/../b"]', "read must be"),
        ('read = ["/a/"]', "read must be"),
        ("refused = [1]", "refused must be"),
        ('reads = ["/a"]', "reads is not a member"),
        ("read = [", "baseline.toml"),
    ],
)
def test_one_that_is_wrong_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    added = tmp_path / "baseline.toml"
    added.write_text(text)
    with pytest.raises(BaselineError, match=problem):
        load(PACKAGED, str(added))


def test_one_that_is_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BaselineError, match="No such file"):
        load(str(tmp_path / "none"), "/nonexistent")
