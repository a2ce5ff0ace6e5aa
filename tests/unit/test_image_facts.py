"""What a record of an image says of levels, and how records and copies of the agent are kept."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.host.engine.base import Image
from orchestrator.host.engine.fake import FakeEngine
from orchestrator.rules.policy.levels import Level, load_levels
from orchestrator.sandbox.images.checked_images import CheckedImages
from orchestrator.sandbox.images.image_check import examine
from orchestrator.sandbox.images.image_facts import ImageFacts, facts_of, parse_environment
from orchestrator.sandbox.images.image_report import level_reports, notes
from orchestrator.sandbox.images.mounted_agents import MountedAgents

LEVELS = load_levels(None)
COMMANDS = sorted({name for level in LEVELS.values() for name in level.commands or ()})
DEBIAN = {name: f"/usr/bin/{name}" for name in (*COMMANDS, "sh", "bash", "python3")}
ALPINE = dict.fromkeys((*COMMANDS, "sh", "busybox"), "/bin/busybox")


def facts(**members: Any) -> ImageFacts:
    known = {
        "id": "sha256:1234",
        "names": ["tool:1"],
        "architecture": "amd64",
        "size": 1,
        "environment": {},
        "volumes": [],
    }
    found = {
        "programs": DEBIAN,
        "broken": {},
        "setuid": [],
        "setuid_count": 0,
        "entries": 1,
        "whole": True,
    }
    return facts_of({**known, **members}, found | members)


def problems(found: ImageFacts) -> dict[str, bool]:
    return {name: found.problem(level) is not None for name, level in LEVELS.items()}


def level(name: str) -> Level:
    return LEVELS[name]


def test_levels_need_their_programs() -> None:
    assert not any(problems(facts()).values())
    nothing = facts(programs={})
    assert problems(nothing) == {"low": True, "medium": True, "high": False}
    assert "none of the programs of level low" in (nothing.problem(level("low")) or "")
    some = facts(programs={"ls": "/bin/ls"}, broken={})
    assert some.problem(level("low")) is None
    assert "cat" in some.missing(level("low"))
    assert "which" not in some.missing(level("medium"))  # the agent answers it


def test_a_shell_that_is_also_a_levels_program_is_refused_where_programs_are_listed() -> None:
    found = facts(programs=ALPINE)
    assert problems(found) == {"low": True, "medium": True, "high": False}
    assert "coreutils" in (found.problem(level("low")) or "")
    # Installed programs come first in the PATH, and the shell is none of them.
    assert not any(problems(facts(programs=DEBIAN | {"sh": "/bin/busybox"})).values())
    one = dict.fromkeys(COMMANDS, "/bin/coreutils") | {"sh": "/bin/dash"}
    assert not any(problems(facts(programs=one)).values())


def test_a_program_that_can_not_start_is_missing() -> None:
    found = facts(broken={"ls": "its loader /lib/ld.so is missing"})
    assert found.missing(level("low")) == ["ls"]
    reports = dict(level_reports(found, LEVELS.values()))
    assert reports["low"] == "works, without ls (its loader /lib/ld.so is missing)"
    assert reports["high"] == "works"


def test_notes_say_what_else_is_different() -> None:
    assert list(notes(facts())) == []
    said = "\n".join(
        notes(facts(programs={}, volumes=["/data"], setuid_count=2, whole=False, entries=9))
    )
    for part in ("no sh", "no python3", "/data", "2 files have setuid", "9"):
        assert part in said
    assert any("bash" in each for each in notes(facts(programs={"sh": "/bin/sh"})))


def test_variables_of_an_image_are_those_that_the_level_permits() -> None:
    found = facts(
        environment={
            "PATH": "/opt/bin",
            "LANG": "de_DE",
            "HOME": "/root",
            "HTTPS_PROXY": "http://x",
            "MODEL": "large",
            "not-a-name": "x",
        }
    )
    assert found.variables(None) == {"PATH": "/opt/bin", "LANG": "de_DE", "MODEL": "large"}
    assert found.variables(["LANG", "PATH"]) == {"LANG": "de_DE"}
    assert found.variables([]) == {}


def test_an_environment_has_a_limit() -> None:
    assert parse_environment(["A=b=c", "EMPTY=", "NONE", "=x"]) == {
        "A": "b=c",
        "EMPTY": "",
        "NONE": "",
    }
    with pytest.raises(ValueError, match="64 KiB"):
        parse_environment(["A=" + "x" * 70_000])


def test_a_name_belongs_to_the_image_that_was_added_last(tmp_path: Path) -> None:
    checked = CheckedImages(tmp_path)
    checked.keep(facts())
    checked.keep(facts(names=["other:1"]))
    kept = checked.of("sha256:1234")
    assert kept is not None
    assert kept.names == ["other:1", "tool:1"]
    checked.keep(facts(id="sha256:5678"))
    assert [each.id for each in checked.named("tool:1")] == ["sha256:5678"]
    assert [each.id for each in checked.named("other:1")] == ["sha256:1234"]
    checked.forget("other:1")
    assert checked.of("sha256:1234") is None
    assert checked.of("sha256:none") is None


@pytest.mark.parametrize("text", ["{", "{}", "[]", '{"version": 1}'])
def test_a_broken_record_is_no_record(tmp_path: Path, text: str) -> None:
    checked = CheckedImages(tmp_path)
    checked.keep(facts())
    (file,) = (tmp_path / "image-facts").iterdir()
    file.write_text(text)
    assert checked.of("sha256:1234") is None
    assert checked.named("tool:1") == []


async def test_an_image_for_another_machine_is_refused(tmp_path: Path) -> None:
    image = Image("sha256:1", {}, architecture="s390x")
    engine = FakeEngine(images={"tool:1": image, "ours": replace(image, id="sha256:2")})
    with pytest.raises(Exception, match="it is for s390x"):
        await examine(engine, MountedAgents(engine, tmp_path, "ours"), "tool:1", [])
    assert "look_into" not in engine.calls


async def test_what_an_image_makes_the_look_say_is_checked(tmp_path: Path) -> None:
    engine = FakeEngine(images={"tool:1": Image("sha256:1", {}), "ours": Image("sha256:2", {})})
    agents = MountedAgents(engine, tmp_path, "ours")
    engine.found = {"programs": {"ls": 7}}
    with pytest.raises(Exception, match="malformed"):
        await examine(engine, agents, "tool:1", [])
