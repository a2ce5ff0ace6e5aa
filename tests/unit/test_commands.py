"""The string rules: words, allowlist, options, paths, and the agent's own answers."""

import posixpath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_agent.core.builtin_commands import BuiltinResult, Facts, builtin
from sandbox_agent.decide.command_words import CommandError, DeniedError, parse_command
from sandbox_agent.decide.commands import (
    Decision,
    decide,
    normalize_cwd,
    paths_to_resolve,
    prepare,
    resolve,
)
from sandbox_agent.decide.options import SAFE, parse_find, parse_options
from sandbox_agent.decide.variables import allowed_variable
from tests.support.raised import raised

FOURTEEN = "pwd ls cat head tail grep find wc stat mkdir touch cp mv rm"
EIGHT = "echo curl neofetch uname whoami date env which"
LOW = frozenset(FOURTEEN.split())
MEDIUM = LOW | frozenset(EIGHT.split())
OPERATORS = ";&|><`$()\0\n\r"


# Words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ls -la", ["ls", "-la"]),
        ("  ls \t -la  ", ["ls", "-la"]),
        ("cat 'a b' \"c d\"", ["cat", "a b", "c d"]),
        ('c"a"t x', ['c"a"t', "x"]),
        ('grep "it\'s" f', ["grep", "it's", "f"]),
        ("echo ''", ["echo", ""]),
        ("echo ''''", ["echo", "''"]),
        ("echo a'b c'd", ["echo", "a'b c'd"]),
        ("echo a'b c'", ["echo", "a'b c"]),
        (
            "ls *.py ~ {a,b} [x] ? # ! \\ %",
            ["ls", "*.py", "~", "{a,b}", "[x]", "?", "#", "!", "\\", "%"],
        ),
        ("cat žluť", ["cat", "žluť"]),
    ],
)
def test_a_command_is_split_into_words(text: str, words: list[str]) -> None:
    assert parse_command(text) == words


TEMPLATES = ["ls{}id", "echo '{}'", 'echo "a{}b"', "{}", "{}ls", "ls x{}"]


def test_operators_are_refused_even_in_quotes() -> None:
    for operator in OPERATORS:
        for template in TEMPLATES:
            text = template.format(operator)
            refusal = raised(DeniedError, parse_command, text)
            assert refusal, text
            assert refusal.rule == "shell-operators", text
            assert refusal.message.startswith("shell operators are not allowed: "), text
            assert refusal.message.isprintable(), text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "command is empty"),
        (" \t ", "command is empty"),
        ("''", "command is empty"),
        ("echo 'a", "not closed"),
        ('echo "', "not closed"),
        ("echo it's", "not closed"),
        ("echo 'a' b\"c", "not closed"),
        ("echo \ud800", "not valid Unicode"),
    ],
)
def test_malformed_commands_are_an_error(text: str, message: str) -> None:
    with pytest.raises(CommandError, match=message):
        parse_command(text)


@given(st.text(st.characters(codec=None), max_size=60) | st.text("ab'\" \t-/.;|", max_size=30))
def test_splitting_is_total_and_lets_no_operator_through(text: str) -> None:
    try:
        words = parse_command(text)
    except DeniedError:
        assert set(text) & set(OPERATORS)
        return
    except CommandError:
        return
    assert words[0]
    assert not set(OPERATORS) & set("".join(words))
    # Nothing but space and quotes is lost.
    lost = {ord(c): None for c in "'\""} | {ord(c): None for c in text if c.isspace()}
    assert "".join(words).translate(lost) == text.translate(lost)


@given(st.lists(st.text("ab -/.=ž\u00a0\t", min_size=1, max_size=8), min_size=1, max_size=6))
def test_quoted_words_come_back(words: list[str]) -> None:
    assert parse_command(" ".join(f'"{word}"' for word in words)) == words
    assert parse_command("\t".join(f"'{word}'" for word in words)) == words


@pytest.mark.slow
def test_a_long_command_is_split_in_one_pass() -> None:
    words = parse_command("echo " + "''" * 200_000 + " " + "a " * 200_000)
    assert len(words) == 200_002
    with pytest.raises(CommandError):
        parse_command("echo " + "a'b'" * 100_000 + "'" + "b" * 100_000)


# Names


@pytest.mark.parametrize(
    "name", ["/bin/ls", "./ls", "LS", "ls ", "../bin/ls", 'l"s', "bash", "x" * 9999]
)
@pytest.mark.parametrize("commands", [LOW, MEDIUM])
def test_names_are_compared_literally(name: str, commands: frozenset[str]) -> None:
    decision = decide([name], commands, level="low")
    assert decision[:2] == (False, "command-allowlist")
    assert decision.message.startswith("command not allowed for permission level low: ")
    assert len(decision.message) < 400


@pytest.mark.parametrize("name", sorted(MEDIUM - LOW))
def test_medium_adds_commands_to_low(name: str) -> None:
    assert decide([name], LOW).rule == "command-allowlist"
    assert decide([name], MEDIUM).allow


@pytest.mark.parametrize("argv", [[], [""], ["", "ls"]])
def test_an_empty_argv_is_an_error(argv: list[str]) -> None:
    for commands in (LOW, None):
        with pytest.raises(CommandError, match="command is empty"):
            decide(argv, commands)


def test_a_command_that_an_operator_added_needs_no_table() -> None:
    assert decide(["git", "-C", "/x", "log"], frozenset({"git"})).allow


# Operands


@pytest.mark.parametrize("commands", [LOW, None], ids=["low", "high"])
@pytest.mark.parametrize("name", ["cp", "mv"])
@pytest.mark.parametrize("operands", [[], ["a"], ["-f", "a"], ["--", "a"]])
def test_cp_and_mv_need_two_operands(
    name: str, operands: list[str], commands: frozenset[str] | None
) -> None:
    with pytest.raises(CommandError, match=f"^{name} requires source and destination$"):
        decide([name, *operands], commands)


def test_operands_are_relative_to_the_working_directory() -> None:
    assert decide(["cat", "../a"], LOW, cwd="/workspace/b").allow
    assert not decide(["cat", "../../a"], LOW, cwd="/workspace/b").allow
    assert decide(["cat", "a"], LOW, workspace="/ws-a", cwd="/ws-a").allow
    assert not decide(["cat", "/ws-a-evil/x"], LOW, workspace="/ws-a", cwd="/ws-a").allow


def test_operators_are_literal_in_argv() -> None:
    assert decide(["grep", "a|b$", "x;y"], LOW).allow


# Arbitrary input

CULPRITS = (
    "/ .. ../x /etc/passwd /workspace /workspace/a /workspace-evil a -- - -t -f -rn -o -exec -L "
    "--file=/etc/x --lines --color=auto -n5 -A -5 +%s http://h file:///x"
)
ARGS = st.lists(st.sampled_from(CULPRITS.split()) | st.text(max_size=6), max_size=6)


@given(st.sampled_from(sorted(MEDIUM)), ARGS, st.sampled_from(["/workspace", "/workspace/a/b"]))
def test_what_is_allowed_stays_inside_and_uses_known_options(
    name: str, args: list[str], cwd: str
) -> None:
    try:
        decision = decide([name, *args], LOW, cwd=cwd)
        assert decision == decide([name, *args], LOW, cwd=cwd)
    except CommandError:
        assert name in {"cp", "mv"}
        return
    assert decision.message.isprintable()
    if not decision.allow:
        return
    assert name in LOW
    read = parse_find(args) if name == "find" else parse_options(args, SAFE[name])
    assert read.refused is None
    paths = read.operands
    if name == "grep" and not read.values("e", "regexp"):
        paths = paths[1:]
    if name == "pwd":
        paths = []
    for path in paths:
        real = posixpath.normpath(posixpath.join(cwd, path)).replace("//", "/")
        assert real == "/workspace" or real.startswith("/workspace/")


WILD = st.lists(st.text(st.characters(codec=None), max_size=8) | st.sampled_from(CULPRITS.split()))


@given(st.sampled_from([*sorted(MEDIUM), "bash", "/bin/ls", "", "LS"]), WILD)
@pytest.mark.parametrize("commands", [LOW, MEDIUM, None], ids=["low", "medium", "high"])
def test_any_words_are_decided(commands: frozenset[str] | None, name: str, args: list[str]) -> None:
    try:
        decision = decide([name, *args], commands)
        if decision.allow:
            paths_to_resolve([name, *args], commands)
    except CommandError:
        assert name in {"cp", "mv", ""}
        return
    assert decision.message.isprintable()
    assert not decision.allow or commands is None or name in commands


@given(st.text("lsca /.-'\"\t;|$", max_size=20) | st.text(max_size=20))
def test_a_line_that_is_allowed_begins_with_a_listed_name(text: str) -> None:
    try:
        words = parse_command(text)
        allowed = decide(words, LOW).allow
    except (CommandError, DeniedError):
        return
    assert not set(OPERATORS) & set(text)
    assert not allowed or words[0] in LOW


@given(st.sampled_from(["cp", "mv", "rm", "touch", "mkdir", "curl", "bash"]), ARGS)
def test_decisions_at_high_are_total(name: str, args: list[str]) -> None:
    try:
        decision = decide([name, *args], None)
    except CommandError:
        assert name in {"cp", "mv"}
        return
    assert isinstance(decision, Decision)
    if name in {"rm", "touch", "mkdir"} and "/etc/passwd" in args[:1]:
        assert not decision.allow


# Links


@pytest.mark.parametrize(
    ("line", "cwd", "paths"),
    [
        ("cat a /workspace/b/../c", "/workspace", [("a", True), ("b/../c", True)]),
        ("cat ../a/", "/workspace/b", [("b/../a/", True)]),
        ("cat /./workspace/link/../a", "/workspace", [("link/../a", True)]),
        ("cat //../workspace//a", "/workspace", [("a", True)]),
        ("ls /workspace", "/workspace", [(".", True)]),
        ("rm a", "/workspace", [("a", False)]),
        # mv follows a link that is its destination.
        ("mv a b c", "/workspace", [("a", False), ("b", False), ("c", True)]),
        ("cp a b", "/workspace", [("a", True), ("b", True)]),
        ("echo /etc", "/workspace", []),
    ],
)
def test_paths_are_left_to_the_kernel_as_they_were_given(
    line: str, cwd: str, paths: list[tuple[str, bool]]
) -> None:
    assert paths_to_resolve(line.split(), MEDIUM, cwd=cwd) == paths


# Working directory, variables, preparation


@pytest.mark.parametrize(
    ("cwd", "path"),
    [
        ("", "/workspace"),
        (".", "/workspace"),
        ("a/b", "/workspace/a/b"),
        ("a/../b/", "/workspace/b"),
        ("/workspace", "/workspace"),
        ("/workspace/a//b", "/workspace/a/b"),
        ("//workspace/a", "/workspace/a"),
        ("a b\n", "/workspace/a b\n"),
    ],
)
def test_a_working_directory_is_made_absolute(cwd: str, path: str) -> None:
    assert normalize_cwd(cwd) == path


@pytest.mark.parametrize(
    "cwd", ["..", "/", "/etc", "/workspace-evil", "a/../..", "a\0b", "/workspace/.."]
)
def test_a_working_directory_stays_in_the_workspace(cwd: str) -> None:
    with pytest.raises(CommandError, match="cwd"):
        normalize_cwd(cwd)


@given(st.text("/.ab", max_size=12))
def test_resolving_is_absolute_and_stable(path: str) -> None:
    resolved = resolve(path, "/workspace")
    assert resolved.startswith("/")
    assert "//" not in resolved
    assert ".." not in resolved.split("/")
    assert resolve(resolved, "/elsewhere") == resolved


@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        ("LANG", True),
        ("LC_ALL", True),
        ("LC_", True),
        ("LANGUAGE", False),
        ("lang", False),
        ("LD_PRELOAD", False),
        ("LC_ALL\n", False),
        ("LC_*", False),
        ("LC_é", False),
        ("", False),
    ],
)
def test_variables_are_allowed_by_name_or_prefix(name: str, allowed: bool) -> None:
    assert allowed_variable(name, ["LANG", "LC_*"]) is allowed


@pytest.mark.parametrize(
    ("name", "allowed"),
    [("LD_PRELOAD", True), ("_x1", True), ("1x", False), ("a=b", False), ("", False)],
)
def test_any_well_formed_variable_is_allowed_without_patterns(name: str, allowed: bool) -> None:
    assert allowed_variable(name, None) is allowed


def test_cp_writes_through_no_link_where_commands_are_listed() -> None:
    assert prepare(["cp", "a", "b"], LOW) == ["cp", "--remove-destination", "a", "b"]
    assert prepare(["cp", "a", "b"], None) == ["cp", "a", "b"]


def test_curl_reads_no_configuration_where_commands_are_listed() -> None:
    assert prepare(["curl", "-s", "h"], MEDIUM) == ["curl", "-q", "-s", "h"]
    assert prepare(["curl", "-s"], None) == ["curl", "-s"]
    assert prepare(["ls"], MEDIUM) == ["ls"]


# The agent's own answers

FACTS = Facts(
    "medium",
    "Debian 12",
    "6.1",
    0.5,
    256 * 1024 * 1024,
    {"ls": "/usr/bin/ls", "cat": "/usr/bin/cat", "bash": "/usr/bin/bash"},
)


@pytest.mark.parametrize(
    ("line", "code", "stdout"),
    [
        ("which ls", 0, b"/usr/bin/ls\n"),
        ("which -a ls cat", 0, b"/usr/bin/ls\n/usr/bin/cat\n"),
        ("which ls bash", 1, b"/usr/bin/ls\n"),
        ("which curl", 1, b""),
        ("which /usr/bin/ls", 1, b""),
        ("which", 1, b""),
    ],
)
def test_which_knows_the_listed_commands(line: str, code: int, stdout: bytes) -> None:
    assert builtin(line.split(), MEDIUM, FACTS) == BuiltinResult(code, stdout, b"")


def test_neofetch_is_a_few_plain_lines() -> None:
    result = builtin(["neofetch"], MEDIUM, FACTS)
    assert result is not None
    assert result.exit_code == 0
    assert result.stdout.isascii()
    assert b"\x1b" not in result.stdout
    for part in (b"medium", b"Debian 12", b"6.1", b"0.5", b"256 MiB"):
        assert part in result.stdout


def test_other_commands_are_left_to_programs() -> None:
    assert builtin(["ls"], MEDIUM, FACTS) is None
    assert builtin(["which", "ls"], LOW, FACTS) is None
    assert builtin(["which", "ls"], None, FACTS) is None
    assert builtin(["neofetch"], None, FACTS) is None
