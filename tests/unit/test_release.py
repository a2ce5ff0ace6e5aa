"""What a release and a Debian package are made of, without making them."""

import re
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest

from paddock.contract.build import UNKNOWN, Build
from scripts import wheels
from scripts.packaging import deb, manual, release
from scripts.packaging.release import ReleaseError

BUILD = Build("1.2.3", "a" * 40, "2026-01-02T03:04:05+00:00")
CHANGES = "# Changelog\n\n## 1.3.0 (unreleased)\n\n* new\n\n## 1.2.3 (2026-01-02)\n\n* old\n"


def test_the_changes_are_the_versions_own() -> None:
    assert release.section(CHANGES, "1.2.3") == "* old\n"


@pytest.mark.parametrize(
    ("number", "said"), [("1.3.0", "as unreleased"), ("1.2", "no section"), ("1x2.3", "no section")]
)
def test_no_release_without_changes_on_record(number: str, said: str) -> None:
    with pytest.raises(ReleaseError, match=said):
        release.section(CHANGES, number)


@pytest.mark.parametrize(
    ("commit", "said"), [(UNKNOWN, "no clone"), ("a" * 40 + "+changed", "commit or discard")]
)
def test_no_release_of_what_is_no_commit(commit: str, said: str) -> None:
    release.check(BUILD)
    with pytest.raises(ReleaseError, match=said):
        release.check(BUILD._replace(commit=commit))


def test_checksums_are_read_by_the_usual_program(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    (tmp_path / "b").write_text("2")
    (tmp_path / release.SUMS).write_text(release.sums(tmp_path))
    done = subprocess.run(
        ["sha256sum", "-c", release.SUMS], cwd=tmp_path, capture_output=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, b"a: OK\nb: OK\n")


def test_later_builds_have_higher_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    debian = deb.DEBIANS[0]
    found = []
    for date in ("2026-01-02T03:04:05+00:00", "2026-01-02T05:04:04+01:00"):
        monkeypatch.setattr(wheels, "stamp", lambda date=date: BUILD._replace(date=date))
        monkeypatch.setattr(deb, "released", lambda _number: False)
        found.append(deb.version(debian))
    monkeypatch.setattr(deb, "released", lambda _number: True)
    found.append(deb.version(debian))
    assert found[2] == "1.2.3+deb12"
    for earlier, later in pairwise(found):
        compare = ["dpkg", "--compare-versions", earlier, "lt", later]
        assert subprocess.run(compare, check=False).returncode == 0, (earlier, later)


@pytest.fixture
def stage(tmp_path: Path) -> Path:
    """The tree of a package without the server's environment."""
    debian = deb.DEBIANS[1]
    (tmp_path / "usr" / "lib" / "paddock").mkdir(parents=True)
    deb._files(tmp_path, debian, "1")
    deb._modes(tmp_path)
    deb._control(tmp_path, debian, "1", "amd64")
    return tmp_path


def test_the_package_says_what_it_needs_and_has(stage: Path) -> None:
    control = (stage / "DEBIAN" / "control").read_text()
    assert re.search(r"(?m)^Depends: python3\.13, libc6 \(>= 2\.41\),", control)
    assert "Recommends: docker.io | docker-ce\n" in control
    conffiles = (stage / "DEBIAN" / "conffiles").read_text().split()
    assert conffiles == ["/etc/paddock/environment", "/etc/paddock/paddock.toml"]
    assert (stage / "etc/paddock/environment").stat().st_mode & 0o777 == 0o600
    for name in ("postinst", "prerm", "postrm"):
        script = stage / "DEBIAN" / name
        assert script.stat().st_mode & 0o777 == 0o755
        assert subprocess.run(["sh", "-n", script], check=False).returncode == 0


def test_the_manual_has_every_command() -> None:
    page = manual.manual_page("1")
    assert ".SS paddock images export" in page
    assert ".SS paddock sessions create" in page
    assert not re.search(r"(?m)^'", page)


needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="needs systemd-analyze"
)
SYSTEMD = Path(__file__).parents[2] / "deploy" / "systemd"


@needs_systemd
@pytest.mark.parametrize(
    ("unit", "exposure"),
    [(deb.SOURCE / "paddock.service", 62), (SYSTEMD / "paddock-gateway.service", 17)],
    ids=lambda value: getattr(value, "name", ""),
)
def test_no_unit_is_more_exposed_than_the_documents_say(unit: Path, exposure: int) -> None:
    """In tenths of systemd's scale from 0 to 10; each setting that is taken away costs some."""
    examine = ["systemd-analyze", "security", "--offline=true", "--no-pager"]
    done = subprocess.run(
        [*examine, f"--threshold={exposure}", unit], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


@needs_systemd
def test_the_unit_is_one(stage: Path) -> None:
    unit = stage / deb.DEBIANS[1].units / "paddock.service"
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, check=False
    )
    said = [line for line in done.stderr.splitlines() if "paddock.service" in line]
    # The program is not installed here.
    assert [line for line in said if "is not executable" not in line] == []
