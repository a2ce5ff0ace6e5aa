"""Cedar policies: strictly parsed, evaluated with a tool's names, denying on any error."""

import shutil
from pathlib import Path

import pytest

from orchestrator.ground.config_error import ConfigError
from orchestrator.rules.tools.cedar import CedarFacts, Policies, load_policies
from orchestrator.rules.tools.manifest import CedarNames

EXAMPLES = Path(__file__).parents[2] / "examples" / "cedar"
DATA = CedarNames("Data::Database", "query", None)
PHASE = CedarNames("PenTest::Host", "execute_tool", 'PenTest::Phase::"exploit"')
PERMIT_ALL = "permit (principal, action, resource);\n"


def facts(
    tool_name: str = "psql_session.select_query",
    state: str = "ready",
    count: int = 0,
    role: str = "reader",
) -> CedarFacts:
    return CedarFacts(tool_name, state, count, "low", "low", role)


def example(directory: Path, *names: str, more: str = "") -> Policies:
    for name in names:
        shutil.copy(EXAMPLES / f"{name}.cedar", directory)
    if more:
        (directory / "more.cedar").write_text(more)
    return load_policies(directory)


def test_the_read_only_agent(tmp_path: Path) -> None:
    policies = example(tmp_path, "read_only_agent")
    assert policies.refusal("psql_session", DATA, facts()) is None
    refused = policies.refusal("psql_session", DATA, facts("psql_session.insert"))
    assert refused == "no policy permits it"
    assert policies.refusal("psql_session", DATA, facts(role="writer")) is not None
    other = CedarNames("Data::Database", "administer", None)
    assert policies.refusal("psql_session", other, facts()) is not None


def test_state_aware_gating_needs_the_principal_of_the_manifest(tmp_path: Path) -> None:
    policies = example(tmp_path, "state_aware")
    run = facts("msfconsole_session.run", "configured", role="exploit")
    assert policies.refusal("msfconsole_session", PHASE, run) is None
    ready = facts("msfconsole_session.run", "ready", role="exploit")
    assert policies.refusal("msfconsole_session", PHASE, ready) is not None
    by_role = CedarNames("PenTest::Host", "execute_tool", None)
    assert policies.refusal("msfconsole_session", by_role, run) is not None


def test_interaction_count_limits(tmp_path: Path) -> None:
    policies = example(tmp_path, "interaction_limit", more=PERMIT_ALL)
    assert policies.refusal("psql_session", DATA, facts(count=49)) is None
    refused = policies.refusal("psql_session", DATA, facts(count=50))
    assert refused == "forbidden by interaction_limit.cedar, policy 1"


def test_a_folder_denies_by_default(tmp_path: Path) -> None:
    assert load_policies(tmp_path).refusal("t", DATA, facts()) == "no policy permits it"


def test_forbid_wins_across_files(tmp_path: Path) -> None:
    (tmp_path / "a.cedar").write_text(PERMIT_ALL)
    assert load_policies(tmp_path).refusal("t", DATA, facts()) is None
    (tmp_path / "b.cedar").write_text("forbid (principal, action, resource);")
    assert load_policies(tmp_path).refusal("t", DATA, facts()) == "forbidden by b.cedar, policy 1"


@pytest.mark.parametrize(
    "condition",
    ["(" * 20_000 + "true" + ")" * 20_000, "1" + " + 1" * 20_000 + " == 1", "[" * 5000],
    ids=["brackets", "a chain", "left open"],
)
def test_nothing_is_parsed_that_would_end_the_process(tmp_path: Path, condition: str) -> None:
    path = tmp_path / "deep.cedar"
    path.write_text(f"permit (principal, action, resource) when {{ {condition} }};")
    with pytest.raises(ConfigError, match=r"deep\.cedar: policy 1: "):
        load_policies(tmp_path)


def test_a_long_list_of_names_is_no_deep_policy(tmp_path: Path) -> None:
    names = ", ".join(f'"tool_{number}.run;([{{"' for number in range(5000))
    condition = f"[{names}].contains(resource.tool_name) // ((("
    (tmp_path / "long.cedar").write_text(
        f"permit (principal, action, resource) when {{ {condition}\n }};"
    )
    assert load_policies(tmp_path).refusal("t", DATA, facts("tool_7.run;([{")) is None


def test_a_tool_without_names_is_denied(tmp_path: Path) -> None:
    (tmp_path / "a.cedar").write_text(PERMIT_ALL)
    refused = load_policies(tmp_path).refusal("t", None, facts())
    assert refused == "policies are in force, and the manifest has no [tool.cedar]"


def test_an_error_of_evaluation_denies(tmp_path: Path) -> None:
    """Cedar skips a forbid that can't be evaluated; here such a forbid denies."""
    (tmp_path / "a.cedar").write_text(
        PERMIT_ALL + "forbid (principal, action, resource) when { resource.session_state > 1 };\n"
    )
    refused = load_policies(tmp_path).refusal("t", DATA, facts())
    assert refused is not None
    assert refused.startswith("the policies can't be evaluated: ")


def test_every_attribute_and_no_namespace(tmp_path: Path) -> None:
    (tmp_path / "a.cedar").write_text(
        'permit (principal == Agent::"reader", action == Action::"query", resource == Db::"tool")'
        ' when { resource.tool_name == "tool.x" && resource.session_state == "ready"'
        ' && resource.interaction_count < 1 && resource.risk_tier == "low"'
        ' && resource.permission_level == "low" };'
    )
    names = CedarNames("Db", "query", None)
    assert load_policies(tmp_path).refusal("tool", names, facts("tool.x")) is None
    assert load_policies(tmp_path).refusal("other", names, facts("tool.x")) is not None


def test_a_role_is_data(tmp_path: Path) -> None:
    (tmp_path / "a.cedar").write_text('permit (principal == Data::Agent::"a", action, resource);')
    policies = load_policies(tmp_path)
    assert policies.refusal("t", DATA, facts(role="a")) is None
    assert policies.refusal("t", DATA, facts(role='a" || true || "')) is not None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("permit (principal", "unexpected end of input"),
        ("permit (principal, action, resource) when { f() };", "`f` is not a valid function"),
        ("permit (principal == ?principal, action, resource);", "templates can't be used"),
        (
            PERMIT_ALL + "permit (principal, action, resource) when { resource.count > 1 };",
            "policy 2: resource.count is not one of tool_name, ",
        ),
        (
            'forbid (principal, action, resource) unless { !(context["x"] == 1) };',
            "policy 1: context has no attributes",
        ),
    ],
)
def test_files_that_can_not_be_used(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "bad.cedar"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_policies(tmp_path)
    assert str(caught.value).startswith(f"{path}: ")
    assert reason in str(caught.value)


def test_folders_and_bytes_that_can_not_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a directory"):
        load_policies(tmp_path / "none")
    (tmp_path / "a.cedar").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match=r"a\.cedar"):
        load_policies(tmp_path)
    (tmp_path / "a.cedar").write_bytes(b"/" * (1024 * 1024 + 1))
    with pytest.raises(ConfigError, match="has more than"):
        load_policies(tmp_path)
