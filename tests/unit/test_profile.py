"""The rights on paths: of a level, of a tool, of mounts."""

from pathlib import Path

from sandbox_agent.decide.protocol import Configuration, Confinement
from sandbox_agent.enforce.landlock import CHANGE, EXECUTE, READ, Rule
from sandbox_agent.enforce.profile import NO_TOOL, path_rules, programs_of

BOOT = Configuration(
    level="low",
    uid=1_900_000_000,
    commands=["ls"],
    environment=[],
    confinement=Confinement(
        paths=True, read=[], execute=[], writable_code=False, ptrace=False, record_execs=True
    ),
    home="/nonexistent",
    cpus=1.0,
    memory_bytes=2**28,
    processes=32,
    output_bytes=2**20,
    max_running=16,
)


def test_a_tool_executes_programs_and_directories_of_programs(tmp_path: Path) -> None:
    tool = NO_TOOL._replace(programs=["cat", str(tmp_path)])
    plain, _ = path_rules(BOOT)
    rules, executable = path_rules(BOOT, tool)
    assert Rule(str(tmp_path), READ | EXECUTE) in set(rules) - set(plain)
    assert {str(tmp_path)} < executable
    assert any(path.endswith("/cat") for path in executable)


def test_mounts_are_written_to_where_the_list_says_so() -> None:
    rules, _ = path_rules(BOOT._replace(writable=("/mnt/data",)))
    assert Rule("/mnt/data", CHANGE) in rules
    assert Rule("/mnt/data", CHANGE) not in path_rules(BOOT)[0]


def test_known_programs_of_the_commands_give_the_same_rules() -> None:
    known = programs_of(BOOT.commands or ())
    before = set(known.closure.read)
    tool = NO_TOOL._replace(programs=["python3"])
    assert path_rules(BOOT, tool, known) == path_rules(BOOT, tool)
    assert known.closure.read == before  # a tool adds nothing to it
