"""Options of all commands may come before the command."""

import pytest

from paddock.cli.global_options import after_the_command
from paddock.cli.program import build


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("--url U sessions list", "sessions list --url U"),
        ("--url=U --json sessions list --status x", "sessions list --url=U --json --status x"),
        ("sessions --context C --key K list", "sessions list --context C --key K"),
        ("--key-file F exec s -- ls --url V", "exec --key-file F s -- ls --url V"),
        ("run -- ls --json", "run -- ls --json"),
        ("sessions list --url U", "sessions list --url U"),
        # What is no command is left to the program, which says so.
        ("--url U", "--url U"),
        ("--url", "--url"),
        ("--url U nonsense", "--url U nonsense"),
        ("--version", "--version"),
        ("", ""),
    ],
)
def test_they_are_moved_behind_its_name(typed: str, meant: str) -> None:
    assert " ".join(after_the_command(build(), typed.split())) == meant
