"""llm-sandbox with the backend `paddock`, as its documents describe a backend's behaviour."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from llm_sandbox import ArtifactSandboxSession, SandboxSession
from llm_sandbox.exceptions import (
    CommandEmptyError,
    ContainerError,
    NotOpenSessionError,
    SandboxTimeoutError,
    SecurityError,
    UnsupportedBackendError,
)
from llm_sandbox.security import SecurityIssueSeverity, SecurityPattern, SecurityPolicy

from paddock import PaddockSync
from paddock.integrations.llm_sandbox import PaddockSession, register

register()

HIGH: dict[str, Any] = {"backend": "paddock", "permission_level": "high", "lang": "python"}


def live() -> set[str]:
    with PaddockSync() as paddock:
        return {each.id for each in paddock.sessions.list() if each.info.live}


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    with SandboxSession(**HIGH) as opened:
        name = opened.container.id
        yield opened
    assert name not in live()
    opened.close()
    with pytest.raises(NotOpenSessionError):
        opened.run("1")


def test_code_runs_and_its_output_is_kept_apart(session: Any) -> None:
    done = session.run("import sys\nprint('out')\nprint('err', file=sys.stderr)\nsys.exit(3)")
    assert (done.exit_code, done.stdout, done.stderr) == (3, "out\n", "err\n")


def test_each_run_begins_anew_and_files_stay(session: Any) -> None:
    assert session.run("x = 1; open('kept.txt', 'w').write('kept')").exit_code == 0
    done = session.run("import os; print(os.getcwd(), open('kept.txt').read(), 'x' in globals())")
    assert done.stdout == "/sandbox kept False\n"


def test_output_is_told_while_it_runs(session: Any) -> None:
    told: list[tuple[str, str]] = []
    done = session.run(
        "import sys\nprint('one', flush=True)\nprint('two', file=sys.stderr, flush=True)",
        on_stdout=lambda text: told.append(("out", text)),
        on_stderr=lambda text: told.append(("err", text)),
    )
    assert (done.stdout, done.stderr) == ("one\n", "two\n")
    assert sorted(told) == [("err", "two\n"), ("out", "one\n")]


def test_commands_are_split_into_words(session: Any) -> None:
    done = session.execute_command("echo 'a b' > c")
    assert (done.exit_code, done.stdout) == (0, "a b > c\n")
    assert session.execute_command("pwd", workdir="/tmp").stdout == "/tmp\n"
    assert session.execute_command("nothing-like-it").exit_code == 127
    with pytest.raises(CommandEmptyError):
        session.execute_command("")


def test_the_first_failure_ends_several_commands(session: Any) -> None:
    done = session.execute_commands(["echo 1", ("sh -c 'exit 4'", "/tmp"), "echo 3"])
    assert (done.exit_code, done.stdout) == (4, "")


def test_files_are_copied_both_ways(session: Any, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "sub").mkdir(parents=True)
    (tree / "sub" / "a.bin").write_bytes(bytes(range(256)))
    (tree / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (tree / "run.sh").chmod(0o755)
    session.copy_to_runtime(str(tree), "/sandbox/tree")
    session.copy_to_runtime(str(tree / "run.sh"), "/sandbox/new/run.sh")
    assert session.execute_command("/sandbox/new/run.sh").stdout == "ran\n"
    session.copy_from_runtime("/sandbox/tree", str(tmp_path / "copy"))
    assert (tmp_path / "copy/sub/a.bin").read_bytes() == bytes(range(256))
    session.copy_from_runtime("/sandbox/tree/sub/a.bin", str(tmp_path / "one/b.bin"))
    assert (tmp_path / "one/b.bin").read_bytes() == bytes(range(256))


def test_files_that_are_missing_or_elsewhere(session: Any, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        session.copy_from_runtime("/sandbox/nothing", str(tmp_path / "x"))
    with pytest.raises(FileNotFoundError):
        session.copy_to_runtime(str(tmp_path / "nothing"), "/sandbox/x")
    with pytest.raises(SecurityError, match="traversal"):
        session.copy_to_runtime(__file__, "/sandbox/../etc/x")
    with pytest.raises(SecurityError, match="path-outside-workspace"):
        session.copy_to_runtime(__file__, "/etc/x")


def test_a_run_that_takes_too_long_is_ended(session: Any) -> None:
    with pytest.raises(SandboxTimeoutError):
        session.run("import time; print('begun', flush=True); time.sleep(600)", timeout=3)
    assert session.run("print(open('kept.txt').read())").stdout == "kept\n"


def test_a_security_policy_looks_at_code_first(session: Any) -> None:
    pattern = SecurityPattern(
        pattern=r"os\.system", description="runs", severity=SecurityIssueSeverity.HIGH
    )
    policy = SecurityPolicy(severity_threshold=SecurityIssueSeverity.HIGH, patterns=[pattern])
    checked = PaddockSession(security_policy=policy)
    assert checked.is_safe("import os\nos.system('ls')")[0] is False
    assert checked.is_safe("print(1)")[0] is True


def test_an_existing_session_is_left_as_it_is(session: Any) -> None:
    name = session.container.id
    with SandboxSession(**HIGH, container_id=name) as other:
        assert other.run("print(open('kept.txt').read())").stdout == "kept\n"
    assert name in live()


def test_an_archive_has_one_file(session: Any) -> None:
    session.run("open('kept.txt', 'w').write('kept')")
    packed, facts = session.get_archive("/sandbox/kept.txt")
    assert (facts["size"], b"kept" in packed) == (4, True)


def test_the_session_of_artifacts(session: Any) -> None:
    with ArtifactSandboxSession(**HIGH, enable_plotting=False) as artifacts:
        assert artifacts.run("print(1)").stdout == "1\n"


def test_an_image_without_other_languages_says_so() -> None:
    with SandboxSession(**HIGH | {"lang": "javascript"}) as opened:
        done = opened.run("console.log(1)")
    assert (done.exit_code, "node" in done.stderr) == (127, True)


def test_a_refusal_says_the_rule_and_what_to_do() -> None:
    """The level is the default one, which runs listed programs only."""
    before = live()
    with (
        pytest.raises(ContainerError, match="command-allowlist"),
        SandboxSession(backend="paddock"),
    ):
        raise AssertionError
    assert live() == before
    with SandboxSession(backend="paddock", skip_environment_setup=True) as opened:
        assert opened.execute_command("ls").exit_code == 0
        done = opened.execute_command("sh -c ls")
        assert (done.exit_code, "command-allowlist" in done.stderr) == (126, True)


def test_options_of_container_engines_are_refused() -> None:
    with pytest.raises(ValueError, match="runtime_configs"):
        SandboxSession(**HIGH, runtime_configs={"mem_limit": "1g"})
    with pytest.raises(UnsupportedBackendError):
        SandboxSession(backend="padlock")
    with (
        pytest.raises(ContainerError, match="level"),
        SandboxSession(backend="paddock", permission_level="none"),
    ):
        raise AssertionError
