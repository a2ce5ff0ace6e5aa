"""Options and arguments that several commands share, and the format of their examples."""

import math
import os
import re
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from paddock.cli.exits import Failure, Status
from paddock.cli.levels import (
    complete_image,
    complete_level,
    complete_session,
    complete_template,
)


def group(help_text: str, kind: type[TyperGroup] | None = None) -> typer.Typer:
    """A group of commands; `kind` is a class that parses their words in its own way."""
    return typer.Typer(
        cls=kind,
        help=help_text,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def example(text: str) -> str:
    """A command's epilogue: its example, as typed."""
    return f"Example: `{text}`"


def finite(number: float | None) -> float | None:
    """The number, for each option that takes a float. Raises: typer.BadParameter."""
    if number is not None and not math.isfinite(number):
        raise typer.BadParameter(f"{number} is not a finite number")
    return number


# After its first word, everything belongs to the command.
TAKES_COMMAND = {"help_option_names": ["-h", "--help"], "allow_interspersed_args": False}

SessionId = Annotated[
    str,
    typer.Argument(metavar="SESSION", help="The session's id.", autocompletion=complete_session),
]
SessionIds = Annotated[
    list[str],
    typer.Argument(
        metavar="SESSION...", help="The sessions' ids.", autocompletion=complete_session
    ),
]
LimitAmounts = Annotated[
    list[str] | None,
    typer.Option(
        "--limits",
        metavar="KIND=AMOUNT",
        help="A lower limit than the level's: cpus, memory_bytes, pids, tmp_bytes, "
        "workspace_bytes; bytes also as 256MiB.",
    ),
]
LabelPairs = Annotated[
    list[str] | None, typer.Option("--label", metavar="KEY=VALUE", help="A label to filter by.")
]
NewId = Annotated[
    str | None, typer.Option("--id", metavar="ID", help="The id of the session and its workspace.")
]
Incarnation = Annotated[
    int | None,
    typer.Option(
        min=1, metavar="N", help="The incarnation of the session id; by default the latest."
    ),
]
NodeLabels = Annotated[
    list[str] | None,
    typer.Option(
        "--node-label", metavar="KEY=VALUE", help="In a cluster: a label that its node has."
    ),
]
Near = Annotated[
    str | None,
    typer.Option(
        "--near",
        metavar="SESSION",
        help="In a cluster: the session on whose node it is put.",
        autocompletion=complete_session,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
JsonLines = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]
Raw = Annotated[bool, typer.Option("--raw", help="Pass escape sequences on to the terminal.")]
NoStdin = Annotated[
    bool, typer.Option("--no-stdin", "-n", help="Do not read piped standard input.")
]
Words = Annotated[
    list[str], typer.Argument(metavar="COMMAND", help="The command and its arguments, after --.")
]
# Without any, the command is given in another way.
OptionalWords = Annotated[
    list[str] | None,
    typer.Argument(metavar="COMMAND", help="The command and its arguments, after --."),
]
ShellLine = Annotated[
    str | None,
    typer.Option(
        "--shell",
        "-s",
        metavar="LINE",
        help="A line for bash instead of COMMAND, at levels that permit any command.",
    ),
]
Merge = Annotated[
    bool, typer.Option("--merge", help="Standard error goes where standard output goes.")
]
OutputFile = Annotated[
    str | None,
    typer.Option(
        "--output-file", metavar="PATH", help="A file of the workspace that gets the output."
    ),
]
CommandId = Annotated[str, typer.Argument(metavar="COMMAND", help="The command's id, as in `ps`.")]
OptionalLevel = Annotated[
    str | None,
    typer.Option(
        "--level",
        "-l",
        metavar="LEVEL",
        help="The permission level: low, medium, high, …",
        autocompletion=complete_level,
    ),
]
Image = Annotated[
    str | None,
    typer.Option(
        "--image",
        "-i",
        metavar="IMAGE",
        help="The sandbox's image.",
        autocompletion=complete_image,
    ),
]
FromTemplate = Annotated[
    str | None,
    typer.Option(
        "--template",
        metavar="NAME",
        help="Begin with this template's workspace.",
        autocompletion=complete_template,
    ),
]
Upload = Annotated[
    Path | None,
    typer.Option("--upload", metavar="DIR", help="Upload this directory's files first."),
]
Keep = Annotated[bool, typer.Option("--keep", help="Keep the session and its files.")]
WorkingDirectory = Annotated[
    str | None, typer.Option("--cwd", metavar="DIR", help="The working directory in the workspace.")
]
Variables = Annotated[
    list[str] | None,
    typer.Option("--env", "-e", metavar="NAME=VALUE", help="An environment variable."),
]
SecretNames = Annotated[
    list[str] | None,
    typer.Option(
        "--secret",
        metavar="NAME[=@FILE]",
        help="A secret variable; its value comes from the environment or a file.",
    ),
]
TimeLimit = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        min=0.001,
        callback=finite,
        metavar="SECONDS",
        help="The time-out of the command; it may have a fraction.",
    ),
]
ApprovalWait = Annotated[
    float,
    typer.Option(
        "--wait",
        min=0,
        max=600,
        callback=finite,
        metavar="SECONDS",
        help="How long to wait for an approval.",
    ),
]
TurnTimeLimit = Annotated[
    int | None,
    typer.Option(
        "--timeout",
        min=1,
        max=86_400,
        metavar="SECONDS",
        help="The time after which it is stopped; by default an hour.",
    ),
]


def command_words(words: list[str]) -> list[str]:
    """The words of a command after another argument, with or without `--`.

    Raises: Failure for one of our options that comes too late.
    """
    if words[0].startswith("-") and words[0] != "--":
        raise Failure(
            f"{words[0]} comes too late",
            "options go before SESSION, the command after --",
            Status.USAGE,
        )
    rest = words[1:] if words[0] == "--" else words
    if not rest:
        raise Failure("missing argument 'COMMAND'", "it comes after --", Status.USAGE)
    return rest


def pairs(texts: list[str] | None, option: str, sign: str = "=") -> dict[str, str]:
    """`NAME=VALUE` texts as a mapping. Raises: typer.BadParameter."""
    found = {}
    for text in texts or []:
        name, between, value = text.partition(sign)
        if not name or not between:
            raise typer.BadParameter(f"{text!r} is not NAME{sign}VALUE", param_hint=option)
        found[name] = value
    return found


def placed(labels: list[str] | None, near: str | None) -> dict[str, Any] | None:
    """The placement of what is new; None if it may be anywhere. Raises: typer.BadParameter."""
    found: dict[str, Any] = {}
    if labels:
        found["labels"] = pairs(labels, "--node-label")
    if near is not None:
        found["near"] = near
    return found or None


_UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "": 1}
_AMOUNT = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?)(KiB|MiB|GiB|)")


def limit_amounts(texts: list[str] | None) -> dict[str, int | float] | None:
    """`KIND=AMOUNT` texts as a mapping; an amount may have a unit. Raises: typer.BadParameter."""
    if not texts:
        return None
    return {
        kind: _amount(f"{kind}={text}: ", text, "--limits")
        for kind, text in pairs(texts, "--limits").items()
    }


def byte_count(text: str, option: str) -> int:
    """The bytes that an amount with a unit names. Raises: typer.BadParameter."""
    number = _amount("", text, option)
    if not isinstance(number, int):
        raise typer.BadParameter(f"{text!r} is no whole number of bytes", param_hint=option)
    return number


def _amount(where: str, text: str, option: str) -> int | float:
    found = _AMOUNT.fullmatch(text)
    if found is None:
        message = f"{where}{text!r} is not a number, such as 0.5, 64 or 256MiB"
        raise typer.BadParameter(message, param_hint=option)
    number = float(found[1]) * _UNITS[found[2]]
    return int(number) if number.is_integer() else number


def secret_values(texts: list[str] | None) -> dict[str, str]:
    """The values of `NAME` from the environment, and of `NAME=@FILE` from files.

    The newline at the end of a file is not part of the value. Raises: typer.BadParameter.
    """
    found = {}
    for text in texts or []:
        name, sign, source = text.partition("=")
        if not name or (sign and not source.startswith("@")):
            # The text is not repeated, because it may be the value.
            message = f"others can read values on the command line: give {name or 'NAME'} or "
            raise typer.BadParameter(f"{message}{name or 'NAME'}=@FILE", param_hint="--secret")
        found[name] = _from_file(Path(source[1:])) if sign else _from_environment(name)
    return found


def _from_environment(name: str) -> str:
    if name not in os.environ:
        message = f"the environment has no {name}: export it, or give {name}=@FILE"
        raise typer.BadParameter(message, param_hint="--secret")
    return os.environ[name]


def _from_file(path: Path) -> str:
    try:
        return path.read_bytes().decode().removesuffix("\n")
    except OSError as error:
        message = f"{path}: {error.strerror}"
    except UnicodeDecodeError:
        message = f"{path} is not UTF-8"
    raise typer.BadParameter(message, param_hint="--secret")
