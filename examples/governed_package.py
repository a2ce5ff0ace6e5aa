"""Governed work on a real package: read it at low, run its tests at high, check the record.

This machine fetches a published package's source and uploads it into two sandboxes. The session's
permission level decides what an agent may do there. What was done and refused is recorded in a hash
chain, which the control plane verifies and this program verifies again.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from typing import Any

from support.arguments import parser_for, read_key
from support.client import Api, ApiError, Session, UnreachableError, connect, session
from support.report import AUDIT_HEADER, LIMITS_HEADER, audit_rows, limits_row, total
from support.sources import Source, SourceError, installed, published_source
from support.terminal import GREEN, RED, Terminal

from orchestrator.ground.config_error import ConfigError
from paddock.audit.chain import verify_chain

PACKAGE = "click==8.1.8"
TEST_NEEDS = ("pytest==8.3.5",)
# Minutes on a slow machine.
TEST_SECONDS = 600
# How many of the programs that a package's tests start the example prints.
MOST_PRINTED = 4
LABELS = {"example": "governed-package"}

# Commands that an agent might try at low, and the rule that refuses each one.
FORBIDDEN = (
    ("curl https://example.com", "command-allowlist"),
    ("python3 -c pass", "command-allowlist"),
    ("cat /etc/passwd", "path-outside-workspace"),
    ("ls; id", "shell-operators"),
    ("find . -name PKG-INFO -exec id {} +", "option-not-allowed"),
)

# A result's position in the audit chain: `{seq, hash}`, as the API returned it.
Receipt = dict[str, Any]


class UnexpectedError(Exception):
    """A check failed; the message says which."""


async def main(url: str, key: str, package: str, needs: Sequence[str]) -> None:
    """Runs the example. Raises: UnexpectedError, ApiError, UnreachableError, SourceError."""
    out = Terminal()
    out.heading("On this machine: fetch the package, and what its tests need")
    source, dependencies = published_source(package), installed(needs)
    out.step(f"{source.name}: {total(source.files)}")
    out.step(f"{', '.join(needs)}: {total(dependencies)}")

    async with connect(url, key) as host:
        # The small image has all that is needed here, and is there already.
        images = (await host.json("GET", "/api/images"))["items"]
        asked = {"labels": LABELS, "image": images[0]["name"]}
        async with (
            session(host, "low", **asked) as low,
            session(host, "high", **asked) as high,
        ):
            looked = await look_around(out, low, source)
            await be_refused(out, low)
            tested = await run_tests(out, high, source, dependencies)
            for used, receipt in ((low, looked), (high, tested)):
                await show_record(out, used, receipt)
            await show_limits(out, host, [low, high])
        out.heading("Both sessions are closed and their workspaces purged")


async def look_around(out: Terminal, low: Session, source: Source) -> Receipt:
    """At low: list, search and copy in the package."""
    out.heading("Permission level low: look at the package and keep it in order")
    await low.upload(source.files)
    out.step(f"uploaded {total(source.files)}")

    listed = await run(out, low, f"ls -A {source.name}")
    top = {path.split("/")[1] for path in source.files}
    expect(set(listed["stdout"].split("\n")) == top | {""}, "ls does not show what was uploaded")

    found = await run(out, low, f"grep -rlF --include=*.py import {source.name}")
    importing = {
        path
        for path, content in source.files.items()
        if path.endswith(".py") and b"import" in content
    }
    expect(set(found["stdout"].split()) == importing, "grep does not find what the files have")

    original = f"{source.name}/PKG-INFO"
    copied = await run(out, low, f"cp -v {original} copy.txt")
    same = await low.download("copy.txt") == source.files[original]
    expect(same, "the copy is not the same as the original")
    receipt: Receipt = copied["audit"]
    return receipt


async def be_refused(out: Terminal, low: Session) -> None:
    """At low: checks that forbidden commands are refused, each by its rule."""
    out.heading("Permission level low: what is refused, and by which rule")
    for command, rule in FORBIDDEN:
        try:
            await low.run(command)
        except ApiError as error:
            expect(error.rule == rule, f"{command!r} was refused otherwise: {error}")
            out.refused(command, rule, str(error))
        else:
            raise UnexpectedError(f"{command!r} was not refused at low")


async def run_tests(
    out: Terminal, high: Session, source: Source, dependencies: dict[str, bytes]
) -> Receipt:
    """At high: runs the package's own tests and shows their output live."""
    out.heading("Permission level high: run the package's own tests")
    await high.upload(source.files)
    await high.upload({f"needs/{path}": content for path, content in dependencies.items()})
    out.step(f"uploaded {total(source.files)}, and {total(dependencies)} to test with")

    argv = ["python3", "-m", "pytest", "-p", "no:cacheprovider"]
    here = f"/workspace/{source.name}"
    env = {"PYTHONPATH": f"{here}/src:{here}:/workspace/needs", "PYTHONUNBUFFERED": "1"}
    out.allowed(" ".join(argv))
    result: dict[str, Any] = {}
    async for event, data in high.stream(argv=argv, cwd=source.name, env=env, timeout=TEST_SECONDS):
        if event in ("stdout", "stderr"):
            out.live(data["text"])
        elif event == "exit":
            result = data
    out.end_line()
    how = "no time was left" if result.get("timed_out") else f"exit code {result.get('exit_code')}"
    expect(result.get("exit_code") == 0, f"the package's tests failed: {how}")
    receipt: Receipt = result["audit"]
    return receipt


async def show_record(out: Terminal, used: Session, receipt: Receipt) -> None:
    """Verifies the session's audit chain on the server and here."""
    out.heading(f"What is on record of {used.id} ({used.level})")
    lines = await used.audit_export()
    events = [json.loads(line) for line in lines]
    executed = [event for event in events if event["operation"] == "command.exec"]
    hidden = executed[MOST_PRINTED:]
    rows = audit_rows([event for event in events if event not in hidden])
    out.table(AUDIT_HEADER, rows, {"allow": GREEN, "deny": RED})
    if hidden:
        out.allowed(f"{len(hidden)} more programs that the commands executed, each on record")
    theirs = await used.audit_verify(receipt)
    expect(theirs["ok"], f"the control plane finds its chain broken: {theirs['reason']}")
    ours = verify_chain(lines, (receipt["seq"], receipt["hash"]))
    expect(ours.ok, f"the exported chain is broken at event {ours.index}: {ours.reason}")
    expect(ours.hash == theirs["hash"], "the export is not the chain that was verified")
    out.allowed(
        f"{len(lines)} events: chain verified by the control plane, and from its export here"
    )


async def show_limits(out: Terminal, host: Api, used: Sequence[Session]) -> None:
    """Checks that the limits that the engine reports for each sandbox are those of the level."""
    out.heading("Limits, as the engine reports them")
    views = [await one.inspect() for one in used]
    out.table(LIMITS_HEADER, [limits_row(view) for view in views])
    policies = await host.json("GET", "/api/policies")
    levels = {level["name"]: level["limits"] for level in policies["items"]}
    for view in views:
        reported = view["sandbox"]["limits"]
        wanted = {name: levels[view["permission_level"]][name] for name in reported}
        expect(reported == wanted, f"{view['id']} should have {wanted}, but has {reported}")


async def run(out: Terminal, used: Session, command: str) -> dict[str, Any]:
    """Runs a command that must succeed, and shows the beginning of its output."""
    result = await used.run(command)
    out.allowed(command)
    out.output(result["stdout"] + result["stderr"], at_most=4)
    expect(result["exit_code"] == 0, f"{command!r} ended with {result['exit_code']}")
    return result


def expect(condition: object, message: str) -> None:
    """Raises: UnexpectedError with the message unless the condition holds."""
    if not condition:
        raise UnexpectedError(message)


def parse_arguments() -> argparse.Namespace:
    """Parses the command line. Raises: ConfigError."""
    parser = parser_for(__doc__ or "")
    parser.add_argument(
        "--package",
        default=PACKAGE,
        help="a package whose source distribution has its tests (default: %(default)s); "
        "fetching it runs its build system on this machine",
    )
    parser.add_argument(
        "--needs",
        nargs="+",
        default=TEST_NEEDS,
        metavar="REQUIREMENT",
        help=f"what its tests need, pure Python only (default: {' '.join(TEST_NEEDS)})",
    )
    return parser.parse_args()


def run_program() -> int:
    """Runs the example; returns the exit status."""
    try:
        arguments = parse_arguments()
    except ConfigError as error:
        return complain(str(error))
    try:
        key = read_key(arguments.key_file)
        asyncio.run(main(arguments.url, key, arguments.package, arguments.needs))
    except UnreachableError as error:
        return complain(f"{arguments.url}: {error} (`make run` starts a control plane)")
    except (UnexpectedError, ApiError, SourceError) as error:
        return complain(str(error))
    except KeyboardInterrupt:
        return complain("interrupted")
    return 0


def complain(text: str) -> int:
    """Prints why the example failed; returns its exit status."""
    print(f"error: {text}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(run_program())
