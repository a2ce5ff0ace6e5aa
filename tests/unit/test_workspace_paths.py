"""Where a workspace may be, what a level's paths mean there, and that one path decides."""

import posixpath
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.ground.errors import ValidationError
from orchestrator.host.workspace.paths import inside_path, outside_path, volume_path
from orchestrator.rules.policy.decision import check_command
from orchestrator.rules.policy.explanation import explain_command, explain_path
from orchestrator.rules.policy.levels import load_levels
from orchestrator.rules.tools.gates import opening
from orchestrator.rules.tools.session_loader import load_manifest
from orchestrator.sandbox.sandboxes.workspace_paths import (
    beside,
    check_path,
    check_place,
    moved,
    moved_value,
)
from sandbox_agent.core.configuration import parse
from sandbox_agent.decide.command_words import DeniedError
from sandbox_agent.decide.commands import paths_to_resolve
from sandbox_agent.decide.errors import AgentError
from sandbox_agent.decide.protocol import Confinement
from sandbox_agent.enforce.guards.guards import _check_workspace
from sandbox_agent.enforce.profile import ConfinementError, path_rules
from sandbox_agent.run.executor import _relative
from tests.support.manifests import PSQL
from tests.unit.test_agent_configuration import CONFIGURATION, MESSAGE

USUAL = "/workspace"
LOW, HIGH = load_levels()["low"], load_levels()["high"]
PLACES = st.sampled_from(["/home/user", "/testbed", "/repo", "/app", "/data/deep/er", USUAL])
NAMES = st.sampled_from([".", "..", "", "a", "b", "workspace", "home", "user", "app", "etc"])
PATHS = st.builds(
    lambda absolute, names: ("/" if absolute else "") + "/".join(names),
    st.booleans(),
    st.lists(NAMES, min_size=1, max_size=7),
)


@pytest.mark.parametrize(
    "path", ["/home/user", "/testbed", "/repo", "/app", "/srv/a/b", "/home", USUAL]
)
def test_where_it_may_be(path: str) -> None:
    check_path(path)


@pytest.mark.parametrize(
    "path",
    [
        *("", "/", "home", "./home", "//home/user", "/home/user/", "/home/../etc", "/home/./user"),
        *(
            "/etc",
            "/usr/local/work",
            "/tmp/x",
            "/root/x",
            "/run/paddock",
            "/proc/1",
            "/opt/paddock",
        ),
        *("/workspace/sub", "/.hidden", "/a b", "/é", "/a\0b", "/a\nb", f"/{'a' * 256}"),
    ],
)
def test_where_it_may_not_be(path: str) -> None:
    with pytest.raises(ValidationError, match="workspace_path") as raised:
        check_path(path)
    assert raised.value.fields["field"] == "workspace_path"


def test_it_shares_its_place_with_nothing() -> None:
    for taken in ("/data", "/data/cache", "/data/cache/deep"):
        with pytest.raises(ValidationError, match=f"overlaps with {taken}$"):
            check_place("/data/cache", ["/mnt/a", taken])
    check_place("/data/cache", ["/mnt/a", "/data/caches", "/dat", "/workspace/bin"])
    check_place(USUAL, ["/workspace/bin"])


def test_an_images_volume_is_beside_it_or_replaced_by_it() -> None:
    assert beside("/data", ["/data", "/cache"]) == ("/cache",)
    assert beside(USUAL, ["/data"]) == ("/data",)
    for volume in ("/data/deep", "/data/deep/er"):
        with pytest.raises(ValidationError, match="workspace_path overlaps"):
            beside("/data", ["/cache", volume])


@given(PATHS, PLACES)
def test_a_levels_path_is_in_the_workspace_where_that_is(path: str, place: str) -> None:
    there = moved(path, place)
    plain = posixpath.normpath(path)
    if plain == USUAL or plain.startswith(f"{USUAL}/"):
        assert inside_path(there, place) == inside_path(path, USUAL)
    else:
        assert there == path
    assert moved(path, USUAL) == path


@pytest.mark.parametrize(
    ("value", "there"),
    [
        ("/workspace", "/app"),
        ("/workspace/bin:/usr/bin", "/app/bin:/usr/bin"),
        ("/workspaces:/workspace-b", "/workspaces:/workspace-b"),
        ("http://host/workspace", "http://host/workspace"),
        ("a /workspace", "a /workspace"),
        ("", ""),
    ],
)
def test_a_levels_variable_is_a_list_of_paths(value: str, there: str) -> None:
    assert moved_value(value, "/app") == there


@given(PATHS, PLACES)
def test_a_path_means_in_every_place_what_it_means_in_the_usual_one(path: str, place: str) -> None:
    """What is relative has the same meaning, and what is absolute the one of its text."""
    found = inside_path(path, place)
    absolute = posixpath.normpath(posixpath.join(place, path))
    inside = absolute == place or absolute.startswith(f"{place}/")
    assert (found is not None) == inside
    if found is not None:
        assert posixpath.normpath(posixpath.join(place, found)) == absolute
        assert not found.startswith(("/", "../"))
        assert outside_path(path, "/elsewhere", writes=True) is None or path.startswith("/tmp")
    if place != USUAL and path.startswith(f"{USUAL}/") and ".." not in path:
        assert found is None


@given(PATHS, PLACES)
def test_words_are_decided_as_they_are_resolved(path: str, place: str) -> None:
    """What the parser allows, the guard looks for beneath the workspace; nothing else."""
    argv = ["cat", f"./{path}" if not path.startswith("/") else path]
    if not explain_command(LOW, None, argv, None, workspace=place).allow:
        return
    check_command(LOW, None, argv, None, workspace=place)
    ((checked, _),) = paths_to_resolve(argv, LOW.commands, place, place)
    assert not checked.startswith("/")
    assert inside_path(argv[1], place) is not None


def test_another_workspaces_path_is_outside() -> None:
    words, cwd = check_command(LOW, "ls sub", None, "/app/d", workspace="/app")
    assert (words, cwd, _relative(cwd, "/app")) == (["ls", "sub"], "/app/d", "d")
    assert volume_path("/data/x", ["/data"], "/app") == "/data/x"
    for path in ("/workspace/a", "/app2/a", "/app/../workspace/a"):
        with pytest.raises(DeniedError):
            check_command(LOW, None, ["cat", path], None, workspace="/app")
        assert not explain_path(LOW, path, workspace="/app").allow
    assert explain_path(LOW, "/app/a", workspace="/app").layers == ()
    told = explain_command(HIGH, "touch /workspace/a", None, None, workspace="/app")
    assert (told.rule, told.layers[1].layer) == ("write-outside-workspace", "mount")
    assert explain_command(HIGH, "touch /app/a", None, None, workspace="/app").layers == ()


@pytest.mark.parametrize("path", ["", "app", "/", "//", "/app/", "/app/../x", "/./app"])
def test_the_agent_takes_absolute_and_normalised_paths_only(path: str) -> None:
    with pytest.raises(AgentError, match="workspace"):
        parse({**MESSAGE, "workspace": path})


def test_the_agent_takes_a_pack_at_the_usual_path_only() -> None:
    pack = {
        **{"manifest_id": "m", "entries": [], "directories": [], "writes": [], "baseline": []},
        **{"firewall_mode": "hard_fail", "digests": []},
    }
    assert parse({**MESSAGE, "consume": pack}).workspace == USUAL
    with pytest.raises(AgentError, match="with consume, workspace must be /workspace"):
        parse({**MESSAGE, "consume": pack, "workspace": "/app"})


def _plain() -> Confinement:
    return CONFIGURATION.confinement._replace(execute=[])


def test_landlock_allows_changes_at_that_path_alone() -> None:
    rules, _ = path_rules(CONFIGURATION._replace(workspace="/app", confinement=_plain()))
    paths = {rule.path for rule in rules}
    assert "/app" in paths
    assert USUAL not in paths


def test_no_program_of_the_level_is_in_the_workspace() -> None:
    """A client could exchange it."""
    place = str(Path("/usr/bin/ls").resolve().parent)
    with pytest.raises(ConfinementError, match="which the workspace covers"):
        path_rules(CONFIGURATION._replace(workspace=place, confinement=_plain()))


def test_a_link_of_the_image_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    uid = (tmp_path / "real").stat().st_uid
    real = str((tmp_path / "real").resolve())
    _check_workspace(real, uid)
    with pytest.raises(ConfinementError, match="symbolic link"):
        _check_workspace(str(tmp_path / "link"), uid)
    with pytest.raises(ConfinementError, match="not mounted"):
        _check_workspace(real, uid + 1)


def test_a_tool_has_nothing_of_its_own_in_the_workspace() -> None:
    tool = replace(
        load_manifest(PSQL), argv=("/app/bin/tool",), read=("/srv/data/x",), execute=("/lib/x",)
    )
    for workspace in ("/app", "/app/bin", "/srv", "/srv/data/x/deep"):
        refused = opening(tool, None, "high", ptrace=True, mounts=(), workspace=workspace)
        assert refused is not None
        assert refused[0] == "workspace-path"
    assert opening(tool, None, "high", ptrace=True, mounts=(), workspace="/other") is None
    assert opening(tool, None, "high", ptrace=True, mounts=()) is None
