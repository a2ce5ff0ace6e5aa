"""The catalog: packaged tools and the operator's, with one broken file at a time."""

import shutil
from pathlib import Path

import pytest

from orchestrator.ground.config_error import BrokenFilesError, ConfigError
from orchestrator.rules.tools.catalog import manifest_files, read_catalog
from orchestrator.rules.tools.tool_rules import ToolRules
from orchestrator.settings.settings import Settings
from tests.support.manifests import MINIMAL, PSQL

SHIPPED = {"gdb", "kubectl", "mysql", "node", "psql", "python3", "redis-cli"}


def write(directory: Path, name: str, text: str) -> Path:
    path = directory / f"{name}.clad.toml"
    path.write_text(text)
    return path


def test_the_shipped_tools() -> None:
    catalog, problems = read_catalog(None)
    assert set(catalog) == SHIPPED
    assert problems == {}


def test_tools_of_the_folder_come_on_top(tmp_path: Path) -> None:
    shutil.copy(PSQL, tmp_path)
    write(tmp_path, "calc", MINIMAL)
    (tmp_path / "notes.toml").write_text("= not read")
    catalog = read_catalog(tmp_path).catalog
    assert set(catalog) == SHIPPED | {"psql_session", "calc"}


def test_a_tool_of_the_folder_replaces_the_shipped_one(tmp_path: Path) -> None:
    write(tmp_path, "mine", MINIMAL.replace('"calc"', '"psql"'))
    catalog = read_catalog(tmp_path).catalog
    assert set(catalog) == SHIPPED
    assert list(catalog["psql"].commands) == ["add"]


def test_a_broken_file_leaves_its_last_version_and_the_others(tmp_path: Path) -> None:
    path = write(tmp_path, "calc", MINIMAL)
    first = read_catalog(tmp_path).catalog
    write(tmp_path, "calc", MINIMAL.replace('"^> $"', '".*"'))
    other = write(tmp_path, "other", MINIMAL.replace('"calc"', '"other"'))
    second, problems = read_catalog(tmp_path, first)
    assert second["calc"] is first["calc"]
    assert "other" in second
    assert list(problems) == [path]
    assert problems[path].startswith(f"{path}: session.ready_pattern: ")
    assert "calc" not in read_catalog(tmp_path).catalog  # no earlier version
    path.unlink()
    other.unlink()
    assert set(read_catalog(tmp_path, second).catalog) == SHIPPED


def test_two_files_can_not_have_one_tool(tmp_path: Path) -> None:
    first = write(tmp_path, "a", MINIMAL)
    second = write(tmp_path, "b", MINIMAL + "# another\n")
    catalog, problems = read_catalog(tmp_path)
    assert problems == {second: f"{second}: tool.name: calc is the tool of {first} already"}
    assert catalog["calc"] is catalog.of_file(first)


def test_the_folder_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a directory"):
        read_catalog(tmp_path / "none")


def rules_of(tmp_path: Path, **settings: Path) -> ToolRules:
    return ToolRules(Settings(state_dir=tmp_path, **settings))  # type: ignore[arg-type]


def test_nothing_is_configured(tmp_path: Path) -> None:
    rules = rules_of(tmp_path)
    assert list(rules.files()) == []
    assert set(rules.catalog) == SHIPPED
    assert rules.policies is None
    assert rules.scope.problem is not None


def test_a_broken_manifest_is_told_and_the_rest_can_be_put_in_force(tmp_path: Path) -> None:
    write(tmp_path, "calc", MINIMAL)
    rules = rules_of(tmp_path, tools_dir=tmp_path)
    (files,) = rules.files()
    files.read()()
    assert "calc" in rules.catalog
    assert files.files() == manifest_files(tmp_path)
    held = rules.catalog["calc"]
    path = write(tmp_path, "calc", "= 1")
    write(tmp_path, "other", MINIMAL.replace('"calc"', '"other"'))
    with pytest.raises(BrokenFilesError) as caught:
        files.read()
    assert list(caught.value.problems) == [path]
    caught.value.replace()
    assert rules.catalog["calc"] is held
    assert "other" in rules.catalog


def test_a_broken_scope_file_denies_all(tmp_path: Path) -> None:
    path = tmp_path / "scope.toml"
    path.write_text("[scope]\ntargets = ['10.0.0.0/8']")
    rules = rules_of(tmp_path, scope_file=path)
    (files,) = rules.files()
    files.read()()
    assert rules.scope.refusal("10.0.0.1") is None
    path.unlink()
    with pytest.raises(BrokenFilesError) as caught:
        files.read()
    caught.value.replace()
    assert "No such file" in (rules.scope.refusal("10.0.0.1") or "")


def test_broken_policies_stay_as_they_were(tmp_path: Path) -> None:
    (tmp_path / "a.cedar").write_text("permit (principal, action, resource);")
    rules = rules_of(tmp_path, cedar_dir=tmp_path)
    (files,) = rules.files()
    files.read()()
    held = rules.policies
    assert held is not None
    (tmp_path / "b.cedar").write_text("permit (")
    with pytest.raises(ConfigError, match=r"b\.cedar"):
        files.read()
    assert rules.policies is held
