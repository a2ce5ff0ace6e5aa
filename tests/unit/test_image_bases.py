"""The Debian on which an image is: where it comes from, and which Python it has."""

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

from images import base, builder, releases, site
from images.errors import BuildError
from images.mirrors import serving, source_files
from images.recipes import CONTROL_PLANE, NEWER_PACKAGES, ROOT, SANDBOX
from images.releases import DEBIAN_12, DEBIAN_13

LINES = """
# deb http://commented.example/debian bookworm main
deb http://one.example/debian bookworm main
deb [arch=amd64 signed-by=/x.gpg] http://two.example/debian bookworm main contrib
deb http://one.example/debian bookworm-updates main
deb-src http://source.example/debian bookworm main
deb http://one.example/debian-security bookworm-security main
"""
FIELDS = """Types: deb
URIs: http://three.example/debian http://one.example/debian
Suites: bookworm bookworm-updates
Components: main

Types: deb
URIs: http://three.example/debian-security
Suites: bookworm-security
Components: main
"""


def test_mirrors_of_a_suite_are_found_in_both_formats() -> None:
    assert serving([LINES, FIELDS], "bookworm") == [
        "http://one.example/debian",
        "http://two.example/debian",
        "http://three.example/debian",
    ]
    assert serving([FIELDS], "bookworm-security") == ["http://three.example/debian-security"]
    assert serving([LINES, FIELDS], "trixie") == []


def test_files_that_name_no_mirror_are_left_out(tmp_path: Path) -> None:
    parts = tmp_path / "sources.list.d"
    parts.mkdir()
    (tmp_path / "sources.list").write_text("# moved\n")
    (parts / "a.list").write_text(LINES)
    (parts / "b.sources").write_text(FIELDS)
    (parts / "c.save").write_text(LINES)
    assert source_files(tmp_path) == [parts / "a.list", parts / "b.sources"]


def test_another_suite_comes_from_the_mirrors_of_this_machines_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "debian.sources"
    file.write_text(FIELDS)
    monkeypatch.setattr(base, "source_files", lambda: [file])
    assert base._sources("bookworm", "bookworm") == [str(file)]
    assert base._sources("trixie", "bookworm") == [
        "deb http://three.example/debian trixie main",
        "deb http://one.example/debian trixie main",
    ]
    with pytest.raises(BuildError, match="no mirror of noble"):
        base._sources("trixie", "noble")


class Engine:
    """An engine with these images, each with its description."""

    def __init__(self, **images: str) -> None:
        self.images = images
        self.containers = list[str]()

    def create_container(self, image: str, command: list[str]) -> dict[str, str]:
        self.containers.append(image)
        return {"Id": image}

    def get_archive(self, container: str, path: str) -> tuple[Iterator[bytes], dict[str, Any]]:
        content = self.images[container].encode()
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            member = tarfile.TarInfo(Path(path).name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        return iter([packed.getvalue()[:700], packed.getvalue()[700:]]), {}

    def remove_container(self, container: str, **_: bool) -> None:
        self.containers.remove(container)


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ("ID=debian\nVERSION_CODENAME=trixie\n", DEBIAN_13),
        ('VERSION_CODENAME="bookworm"\n', DEBIAN_12),
        ("VERSION_CODENAME=daedalus\n", DEBIAN_12),
        ("PRETTY_NAME=trixie\n", DEBIAN_12),
    ],
)
def test_an_image_says_which_release_it_has(text: str, release: releases.Release) -> None:
    engine = Engine(one=text)
    assert releases.of_image(engine, "one") == release  # type: ignore[arg-type]
    assert engine.containers == []


def test_packages_are_for_the_releases_python_and_c_library(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    called = list[tuple[str, ...]]()

    def pip(_report: base.Report, *arguments: str) -> None:
        called.append(arguments)
        for word in arguments:
            name, _, value = word.partition("=")
            if name in ("--wheel-dir", "--target"):
                Path(value).mkdir(exist_ok=True)
                Path(value, "a.whl").touch()

    monkeypatch.setattr(site, "_pip", pip)
    files = {"pyproject.toml": b"", "paddock/contract/build.py": b""}
    installed = site.install(files, "amd64", DEBIAN_13, lambda _line: None)
    assert installed == {"site/a.whl": b""}
    _, dependencies, project = called
    for words in (dependencies, project):
        assert "--python-version=3.13" in words
        assert "--platform=manylinux_2_41_x86_64" in words
    assert "--require-hashes" in dependencies


class Machine:
    """What a machine has of bases, a registry and Debian's mirrors."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.present = set[str]()
        self.pulled = set[str]()
        self.can_make = True
        self.made = list[tuple[str, str | None]]()
        self.said = list[str]()
        monkeypatch.delenv("PADDOCK_BASE_IMAGE", raising=False)
        monkeypatch.setattr(base, "inspect", lambda _client, name: {} if self.has(name) else None)
        monkeypatch.setattr(base, "pull", lambda name, _report: name in self.pulled)
        monkeypatch.setattr(base, "_make", self._make)

    def has(self, name: str) -> bool:
        return name in self.present

    def _make(
        self,
        _client: object,
        name: str,
        packages: list[str],
        unused: list[str],
        _report: object,
        suite: str | None = None,
    ) -> None:
        if suite and not self.can_make:
            raise BuildError("mmdebstrap ended with exit status 100")
        assert "python3" in packages
        assert unused
        self.made.append((name, suite))

    def chosen(self, recipe: Any) -> str:
        client: docker.APIClient = Engine()  # type: ignore[assignment]
        return builder._base(client, recipe, self.said.append)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def test_the_control_plane_prefers_the_newer_debian(machine: Machine) -> None:
    made, registry, old, _ = builder.base_names(CONTROL_PLANE)
    assert made.startswith("paddock/base:trixie-")
    assert registry == "debian:trixie-slim"
    machine.present = {registry, old}
    assert machine.chosen(CONTROL_PLANE) == registry
    machine.present.add(made)
    assert machine.chosen(CONTROL_PLANE) == made
    assert machine.chosen(SANDBOX) == old
    machine.present, machine.pulled = {old}, {registry}
    assert machine.chosen(CONTROL_PLANE) == registry
    machine.pulled = set()
    assert machine.chosen(CONTROL_PLANE) == made
    assert machine.made == [(made, "trixie")]


def test_without_it_the_sandbox_image_s_base_is_used(machine: Machine) -> None:
    *_, old, _ = builder.base_names(CONTROL_PLANE)
    machine.present, machine.can_make = {old}, False
    assert machine.chosen(CONTROL_PLANE) == old
    assert machine.said[-1] == "no base of trixie: mmdebstrap ended with exit status 100"


def test_an_operators_base_is_the_base_of_every_image(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PADDOCK_BASE_IMAGE", "own:1")
    machine.present = {"own:1", *builder.base_names(SANDBOX)}
    for recipe in (SANDBOX, CONTROL_PLANE):
        assert builder.base_names(recipe) == ["own:1"]
        assert machine.chosen(recipe) == "own:1"


def test_a_newer_base_is_named_by_its_content() -> None:
    names = {
        base.newer_names(suite, packages, unused)[0]
        for suite in ("trixie", "forky")
        for packages in (b"a\n", b"b\n")
        for unused in (b"", b"/usr/share/doc/*\n")
    }
    assert len(names) == 8
    assert "python3" in (ROOT / NEWER_PACKAGES).read_text().split()
