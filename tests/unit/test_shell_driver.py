"""The loop of kept shells in a real bash, and the reports that it sends."""

import shlex
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sandbox_agent.enforce.command_process import CONTROL_FD
from sandbox_agent.pty.shell_driver import VARIABLES, Begun, Ready, Reports, run
from tests.support.driven_shell import DrivenShell

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=200)


@pytest.fixture(scope="module")
def bash(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DrivenShell]:
    argv = ["bash", "--noprofile", "--norc", "--noediting", "-i"]
    variables = {"HISTFILE": "/dev/null", **VARIABLES}
    made = DrivenShell(argv, variables, tmp_path_factory.mktemp("shell"), run)
    made.until_ready()
    yield made
    made.close()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(TEXTS, st.integers(0, 255))
def test_any_text_arrives(bash: DrivenShell, text: str, code: int) -> None:
    command = f"printf %s {shlex.quote(text)}\n(exit {code})"
    assert bash.run(command) == (text, code, "")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(TEXTS)
def test_what_is_quoted_and_never_closed_runs_nothing(bash: DrivenShell, text: str) -> None:
    printed, _, error = bash.run(f"echo ran; : {shlex.quote(text)}'")
    assert printed == ""
    assert "unexpected EOF" in error


def test_what_a_command_can_do_to_the_loop(bash: DrivenShell) -> None:
    """Each row: a text, what it prints, its status."""
    rows = [
        ("break; continue; echo on", None, 0),
        ("for i in 1 2; do break; done; echo $i", "1\n", 0),
        ("return 3", None, 2),
        ("declare -A map=([k]=v); readonly fixed=1", "", 0),
        ("echo ${map[k]} $fixed", "v 1\n", 0),
        ("eval() { echo no; }; read() { echo no; }; printf() { echo no; }", "", 0),
        ("unset -f eval read printf; set -u; IFS=x", "", 0),
        ("echo $missing", None, 1),
        ("set +u; unset IFS; (exit 9)", "", 9),
        ("echo $?", "9\n", 0),
        ("PROMPT_COMMAND='echo no'; PS1='no '; trap 'echo no' EXIT; trap - EXIT", "", 0),
        ("env | grep -c paddock", "0\n", 1),
        (f"echo x >&{CONTROL_FD}", None, 1),
        ("set -x; set +x 2>/dev/null", None, 0),
    ]
    for text, printed, status in rows:
        found = bash.run(text)
        assert found[1:] == (status, ""), text
        assert printed is None or found[0] == printed, text


def test_an_interrupt_ends_the_command_only(bash: DrivenShell) -> None:
    bash.start("kept=1; echo up; while :; do :; done; echo no")
    bash.until_begun()
    bash.until_printed("up\n")
    bash.interrupt()
    _, ready = bash.until_ready()
    assert ready.status == 130
    assert "no" not in bash.printed()
    # On a busy machine it was interrupted twice, and the second one comes late.
    while (found := bash.run("echo $kept"))[1] == 130:
        pass
    assert found[0].endswith("1\n")


@given(st.lists(st.tuples(st.integers(0, 10**18 - 1), st.integers(0, 255), TEXTS), max_size=5))
def test_reports_may_come_in_any_pieces(found: list[tuple[int, int, str]]) -> None:
    sent = b"".join(
        b"begin\0%d\0\0%s\0ready\0%d\0%d\0%s\0" % (n, t.encode(), n, s, t.encode())
        for n, s, t in found
    )
    reports, taken = Reports(), []
    for byte in sent:
        taken += reports.take(bytes([byte]))
    assert (
        taken
        == [each for n, s, t in found for each in (Begun(n, t), Ready(n, s, t))]
        == Reports().take(sent)
    )


@given(st.binary(max_size=200))
def test_anything_else_is_refused(data: bytes) -> None:
    try:
        found = Reports().take(data)
    except ValueError:
        return
    assert not found or data.startswith((b"begin\0", b"ready\0"))


def test_an_endless_report_is_refused() -> None:
    with pytest.raises(ValueError, match="too long"):
        Reports().take(b"ready\x001\x000\0" + b"x" * 20_000)
