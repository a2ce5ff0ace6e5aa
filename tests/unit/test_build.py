"""Which build a program says that it is."""

import subprocess
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from orchestrator.ground.metrics import Metrics
from paddock.contract import build
from paddock.contract.build import UNKNOWN, Build, in_checkout, this_build
from scripts import wheels

BUILT = Build("1.2.3", "0123456789abcdef" * 2 + "01234567", "2026-01-02T03:04:05+00:00")


def git(root: Path, *words: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    command = ["git", "-C", str(root), *who, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_a_build_is_what_its_file_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "_HERE", tmp_path)
    (tmp_path / build.FILE).write_text(BUILT.text())
    assert this_build() == BUILT
    assert str(BUILT) == "1.2.3 (commit 0123456789ab, built 2026-01-02T03:04:05+00:00)"


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", '{"version": "1"}', BUILT.text().replace("1.2.3", "\\n1"), "[" * 9000],
)
def test_a_file_that_says_nothing_is_none(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "_HERE", tmp_path)
    monkeypatch.setattr(build, "_CHECKOUT", tmp_path)
    (tmp_path / build.FILE).write_text(text)
    assert this_build()[1:] == (UNKNOWN, UNKNOWN)


def test_in_a_checkout_git_knows_it(tmp_path: Path) -> None:
    assert in_checkout(tmp_path).commit == UNKNOWN
    git(tmp_path, "init", "-q")
    assert in_checkout(tmp_path).commit == UNKNOWN  # no commit yet
    (tmp_path / "file").write_text("1")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    head = git(tmp_path, "rev-parse", "HEAD")
    assert in_checkout(tmp_path).commit == head
    assert in_checkout(tmp_path).date == git(tmp_path, "log", "-1", "--format=%cI")
    (tmp_path / "file").write_text("2")
    assert in_checkout(tmp_path).commit == f"{head}+changed"
    assert f"{head[:12]}+changed" in str(in_checkout(tmp_path))


def test_a_build_is_of_the_commits_time_unless_another_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(wheels, "in_checkout", lambda _root: BUILT)
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    assert wheels.stamp().date == BUILT.date
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    assert wheels.stamp() == BUILT._replace(
        version=wheels.number(), date="1970-01-02T00:00:00+00:00"
    )


def test_the_metrics_have_it() -> None:
    families = text_string_to_metric_families(Metrics().render().decode())
    (info,) = (each for each in families if each.name == "paddock_build_info")
    (sample,) = info.samples
    build = this_build()
    assert (sample.labels["version"], sample.labels["commit"]) == build[:2]
