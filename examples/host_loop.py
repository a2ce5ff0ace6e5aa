"""A host controls an agent's loop: a model proposes how to mend a package, and the host decides.

The model answers with programs. The host runs each one as a turn within the session's policy, which
stages what it writes. A person looks at that, and only what is approved reaches the workspace.
Without --model the model is a script, and nothing is sent anywhere.
"""

import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from support.arguments import parser_for, read_key
from support.client import UnreachableError
from support.model import Ask, governed, scripted
from support.review import review
from support.sources import SourceError, installed, published_source, write_below
from support.terminal import Terminal

from orchestrator.ground.config_error import ConfigError
from paddock import PaddockError, PaddockSync, Proposals, Session, Sync

PACKAGE, TEST_NEEDS = "click==8.1.8", ("pytest==8.3.5",)
# The mistake that is made in the package, so that there is something to mend.
MISTAKE = ("src/click/parser.py", b"out.append(lex.token)", b"out.append(lex.state)")
TEST = "python3 -m pytest -q -p no:cacheprovider tests/test_parser.py"
BUDGET = {"iterations": 30, "tokens": 100_000, "time": 600}

# The host's own turn: it only reads.
CONTEXT = """
(define hits (world.search "def split_arg_string" "src"))
(map (lambda (ref) (list ref (world.read ref))) (unique (map first hits)))"""
PROMPT = """Mend this package: tests/test_parser.py fails. Answer with one program in Lisp only:
(world.write ref (replace (world.read ref) old new)) changes a file below src,
(needs 'needs-evidence "what") asks for something, 'done says that nothing is left to do.
What happened last: {happened}
Files: {files}"""

Approve = Callable[[Proposals], bool]


def loop(
    out: Terminal, work: Session[Sync], tests: Session[Sync], ask: Ask, approve: Approve
) -> bool:
    """The loop; returns whether it ended with a package that passes its tests."""
    happened, passed = "nothing yet", False
    while work.refresh().status == "active":  # a budget that is used up ends the session
        # 1. The host gathers context, and asks the model, which does nothing but answer.
        files = work.turns.run(CONTEXT).outcome
        program = ask(work, PROMPT.format(happened=happened, files=files and files.value))
        out.heading("The model answers")
        out.output(program)
        # 2. The host runs the answer as a turn, and the policy decides about each operation.
        outcome = work.turns.run(program).outcome
        assert outcome is not None  # the turn has ended
        match outcome.tag:
            case "proposed":  # 3. It has staged something, which is to be reviewed.
                staged = work.proposals.list()
                if not approve(staged):
                    work.abort()
                    out.failed("rejected: the session is aborted, and nothing was changed")
                    return False
                # This is committed, and nothing else: whatever changed meanwhile is a conflict.
                for path in work.proposals.commit(expected=staged.items).paths:
                    out.allowed(f"committed {path}")
                    tests.files.write(path, work.files.read(path), parents=True)
                happened, passed = run_tests(out, tests)
            case "needs" if outcome.need_type == "needs-evidence":
                out.step(f"needs {outcome.description}")
                happened, passed = run_tests(out, tests)
            case "ok" if outcome.value == "done" and passed:
                work.complete()
                out.allowed("done: the session is complete")
                return True
            case tag:  # 4. A refusal, a mistake, another need: the model hears of it.
                happened = outcome.message or outcome.description or f"the value {outcome.value}"
                out.failed(f"{tag}: {happened}")
    out.failed(f"the session has ended: {work.info.status}")
    return False


def run_tests(out: Terminal, tests: Session[Sync]) -> tuple[str, bool]:
    """Runs the tests in their own session: their output, and whether they pass."""
    result = tests.exec(TEST, env={"PYTHONPATH": "src:needs"})
    passed = result.exit_code == 0
    (out.allowed if passed else out.failed)(TEST)
    out.output("\n".join(result.stdout.splitlines()[-3:]))
    return result.stdout, passed


@contextmanager
def session_with(
    paddock: PaddockSync, files: Mapping[str, bytes], **members: Any
) -> Iterator[Session[Sync]]:
    """A session whose workspace has these files; both are removed at the end."""
    with paddock.sessions.create(**members) as session, tempfile.TemporaryDirectory() as folder:
        try:
            write_below(Path(folder), files)
            session.files.upload_dir(folder)
            session.proposals.commit()  # nothing is staged unless the policy stages writes
            yield session
        finally:
            session.close(purge=True)


def main(paddock: PaddockSync, out: Terminal, ask: Ask, approve: Approve) -> bool:
    """Makes a mistake in a package, and has it mended; returns whether it was."""
    source = published_source(PACKAGE)
    files = {path.removeprefix(f"{source.name}/"): data for path, data in source.files.items()}
    broken, right, wrong = MISTAKE
    files[broken] = files[broken].replace(right, wrong)
    sources = {path: data for path, data in files.items() if path.startswith("src/")}
    tests = {path: data for path, data in files.items() if path.startswith("tests/")}
    needs = {f"needs/{path}": data for path, data in installed(TEST_NEEDS).items()}
    agent = {"permission_level": "low", "policy": "SAFE_EDIT", "budget": BUDGET}
    with (
        session_with(paddock, sources, **agent) as work,
        session_with(paddock, sources | tests | needs, permission_level="high") as testing,
    ):
        return loop(out, work, testing, ask, approve)


def run_program() -> int:
    """Runs the example; returns the exit status."""
    try:
        parser = parser_for(__doc__ or "")
        parser.add_argument("--yes", action="store_true", help="approve every proposal")
        parser.add_argument("--model", help="one of PADDOCK_MODELS, in place of the script")
        arguments = parser.parse_args()
        out = Terminal()
        ask = governed(arguments.model) if arguments.model else scripted()
        with PaddockSync(arguments.url, read_key(arguments.key_file)) as paddock:
            return 0 if main(paddock, out, ask, partial(review, out, yes=arguments.yes)) else 1
    except (ConfigError, UnreachableError, SourceError, PaddockError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(run_program())
