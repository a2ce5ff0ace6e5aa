"""What E2B's code interpreter for Python does: cells, contexts, results, interrupts."""

import os
from collections.abc import Iterator
from typing import Any

import pytest
from e2b import NotFoundException, SandboxException, TimeoutException
from e2b_code_interpreter import Context, Sandbox

LEVEL = {"paddock.level": "high"}


@pytest.fixture(scope="module", autouse=True)
def address() -> Iterator[None]:
    """The three lines that are changed."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("E2B_API_KEY", os.environ["PADDOCK_KEY"])
        patched.setenv("E2B_API_URL", os.environ["PADDOCK_URL"] + "/compat/e2b")
        patched.setenv("E2B_SANDBOX_URL", os.environ["PADDOCK_URL"] + "/compat/e2b")
        yield


@pytest.fixture(scope="module")
def box() -> Iterator[Any]:
    box = Sandbox.create(timeout=600, metadata=LEVEL)
    yield box
    box.kill()


def test_a_value(box: Any) -> None:
    done = box.run_code("x = 1; x")
    assert (done.text, done.error, done.logs.stdout) == ("1", None, [])
    assert done.results[0].is_main_result


def test_names_stay(box: Any) -> None:
    box.run_code("kept = 41")
    assert box.run_code("kept + 1").text == "42"


def test_a_text_has_no_quotes(box: Any) -> None:
    assert box.run_code("'hello'").text == "hello"


def test_output(box: Any) -> None:
    done = box.run_code("import sys\nprint('out')\nprint('err', file=sys.stderr)")
    assert ("".join(done.logs.stdout), "".join(done.logs.stderr)) == ("out\n", "err\n")


def test_output_is_told_as_it_comes(box: Any) -> None:
    out: list[Any] = []
    results: list[Any] = []
    errors: list[Any] = []
    box.run_code("print('a'); 1", on_stdout=out.append, on_result=results.append)
    box.run_code("1/0", on_error=errors.append)
    assert (out[0].line, out[0].error, results[0].text) == ("a\n", False, "1")
    assert out[0].timestamp > 10**18
    assert errors[0].name == "ZeroDivisionError"


def test_an_error(box: Any) -> None:
    done = box.run_code("def f():\n    raise ValueError('no')\nf()")
    assert (done.error.name, done.error.value) == ("ValueError", "no")
    assert "raise ValueError" in done.error.traceback


def test_what_shows_itself(box: Any) -> None:
    shown = box.run_code(
        "class Shown:\n"
        "    def _repr_html_(self): return '<b>html</b>'\n"
        "    def _repr_markdown_(self): return '*md*'\n"
        "    def _repr_svg_(self): return '<svg/>'\n"
        "    def _repr_latex_(self): return '$x$'\n"
        "    def _repr_json_(self): return {'a': 1}\n"
        "Shown()"
    ).results[0]
    assert (shown.html, shown.markdown, shown.svg) == ("<b>html</b>", "*md*", "<svg/>")
    assert (shown.latex, shown.json) == ("$x$", {"a": 1})


def test_executions_are_counted(box: Any) -> None:
    first = box.run_code("1").execution_count
    assert box.run_code("2").execution_count == first + 1


def test_variables_of_one_cell(box: Any) -> None:
    assert box.run_code("import os; os.environ['A']", envs={"A": "of it"}).text == "of it"
    assert box.run_code("os.environ.get('A', 'none')").text == "none"


def test_the_directory(box: Any) -> None:
    assert box.run_code("import os; os.getcwd()").text == "/home/user"


def test_a_time_out_interrupts_the_cell(box: Any) -> None:
    box.run_code("before = 1")
    with pytest.raises(TimeoutException):
        box.run_code("import time; time.sleep(60)", timeout=1)
    assert box.run_code("before").text == "1"


def test_bash(box: Any) -> None:
    done = box.run_code("echo $((6*7))", language="bash")
    assert "".join(done.logs.stdout) == "42\n"


def test_a_language_that_the_image_has_not(box: Any) -> None:
    with pytest.raises(SandboxException, match="this sandbox has no r"):
        box.run_code("1", language="r")


def test_contexts(box: Any) -> None:
    listed = box.list_code_contexts()
    assert {"python", "javascript"} <= {each.language for each in listed}
    context = box.create_code_context(cwd="/tmp", language="python")
    assert (context.language, context.cwd) == ("python", "/tmp")
    assert context.id in [each.id for each in box.list_code_contexts()]
    box.run_code("own = 1", context=context)
    assert box.run_code("own", context=context).text == "1"
    assert box.run_code("own").error.name == "NameError"
    box.restart_code_context(context)
    assert box.run_code("own", context=context).error.name == "NameError"
    box.remove_code_context(context.id)
    assert context.id not in [each.id for each in box.list_code_contexts()]
    with pytest.raises(NotFoundException):
        box.run_code("1", context=Context(context.id, "python", "/"))


def test_the_default_context_begins_anew(box: Any) -> None:
    box.run_code("gone = 1")
    (default,) = [each for each in box.list_code_contexts() if each.id == "python"]
    box.restart_code_context(default)
    assert box.run_code("gone").error.name == "NameError"


def test_files_are_shared(box: Any) -> None:
    box.files.write("of-files.txt", "content")
    assert box.run_code("open('of-files.txt').read()").text == "content"
    box.run_code("open('of-code.txt', 'w').write('x')")
    assert box.files.read("of-code.txt") == "x"


def test_a_killed_sandbox() -> None:
    box = Sandbox.create(timeout=600, metadata=LEVEL)
    box.kill()
    with pytest.raises(TimeoutException, match="was not found"):
        box.run_code("1")
