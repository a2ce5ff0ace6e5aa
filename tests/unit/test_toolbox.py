"""The tools that the model of a run is offered, of all that it may name."""

from typing import Any

from orchestrator.programs.turns.host_tools import HostTool
from orchestrator.programs.turns.outcome import Value
from orchestrator.programs.turns.programs import Operation
from orchestrator.programs.turns.runs.run_tool import result
from orchestrator.programs.turns.runs.toolbox import named, offered, toolbox
from orchestrator.programs.turns.runs.tools import TOOLS
from orchestrator.rules.policy.levels import Level, load_levels
from orchestrator.rules.tools.listing import ListedTool
from orchestrator.rules.tools.schemas import input_schema
from orchestrator.work.models.messages import ToolCall
from tests.unit.test_session_policy import EVERYTHING

SCHEMA: dict[str, Any] = {"type": "object"}


def listed(name: str, **members: Any) -> ListedTool:
    tool, _, command = name.partition(".")
    values: dict[str, Any] = {
        "name": name,
        "tool": tool,
        "command": command,
        "description": "does it",
        "input_schema": input_schema() if command else SCHEMA,
        "risk_tier": "low",
        "human_approval": False,
        "rule": None,
        "sha256": "0" * 64,
    }
    return ListedTool(**{**values, **members})


def host(name: str) -> HostTool:
    return HostTool(name, "the host's", SCHEMA, "https://h.example/t", "s" * 16, 30)


def names(*tools: ListedTool) -> list[str]:
    return [each.name for each in offered(toolbox(tools, ()), EVERYTHING, level())]


def level() -> Level:
    return load_levels()["high"]


def test_a_tool_whose_program_the_image_lacks_is_not_offered() -> None:
    tools = [listed("a.b", program="psql"), listed("c", program="nmap"), listed("d")]
    found = offered(toolbox(tools, (), {"psql"}), EVERYTHING, level())
    given = {each.name for each in found}
    assert {"c", "d"} <= given
    assert "a__b" not in given


def test_names_are_those_that_endpoints_take() -> None:
    tools = toolbox([listed("a.b"), listed("c")], [host("d")])
    assert {"a__b", "c", "d", *TOOLS} == tools.keys()
    assert named(tools, "a.b") is named(tools, "a__b") is tools["a__b"]
    assert named(tools, "a_b") is None


def test_of_two_with_one_name_the_first_one_counts() -> None:
    tools = toolbox([listed("exec"), listed("a.b")], [host("a__b"), host("exec")])
    assert tools["exec"] is TOOLS["exec"]
    assert tools["a__b"].operation({"command": "x"}) == Operation("world.tool", ("a.b", "x"))


def test_each_tool_of_the_operator_can_be_called() -> None:
    long = f"{'t' * 64}.{'c' * 64}"
    tools = toolbox([listed("exec"), listed("a.b"), listed("a__b"), listed(long)], ())
    for name in ("a.b", "a__b", long):
        found = named(tools, name)
        assert found is not None
        assert len(found.name) <= 64
        assert found is tools[found.name]
        assert found.operation({"command": "x"}).args[0] == name
    # Its own tools come first.
    assert named(tools, "exec") is TOOLS["exec"]


def test_what_is_offered_is_bounded() -> None:
    assert len(names(*(listed(f"t{number}.c") for number in range(500)))) == 128
    assert {"t" * 64, f"{'t' * 61}__c"} <= {*names(listed("t" * 64), listed(f"{'t' * 61}.c"))}
    (long_name,) = {*names(listed(f"{'t' * 62}.c"))} - {*TOOLS}
    assert len(long_name) == 64
    assert "a__b" not in names(listed("a.b", rule="risk-tier"))
    long = toolbox([listed("a.b", pattern="x" * 2000)], ())["a__b"].shown()
    assert long.description.startswith("does it\nThe line must match xx")
    assert len(long.description) == 1024


def test_what_a_tool_said_is_told() -> None:
    tool = toolbox([listed("a.b")], ())["a__b"]
    for status, output, error, told in (
        ("success", "5", None, "5"),
        ("success", "", None, "[nothing]"),
        ("timeout", "so far", "it is slow", "so far\n[timeout: it is slow]"),
        ("error", "", "it has ended", "[error: it has ended]"),
    ):
        value: Value = (("status", status), ("output", output), ("error", error))
        assert result(tool, {}, value) == told
    assert len(result(tool, {}, (("status", "success"), ("output", "x" * 10**6)))) < 50_000


def test_the_arguments_of_a_oneshot_tool_are_pairs() -> None:
    call = ToolCall("1", "c", '{"name": "a", "mode": "soft"}')
    tool = toolbox([listed("c")], ())["c"]
    given = tool.read(call.arguments)
    pairs = (("name", "a"), ("mode", "soft"))
    assert tool.operation(given) == Operation("world.tool", ("c", pairs))
