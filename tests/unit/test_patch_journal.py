"""A patch of several files, whose worker is killed at any of its steps: all of it happens, or none.

Each test does so in a process of its own, which ends at once where it is killed.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sandbox_agent.decide.errors import AgentError
from sandbox_agent.files import journal
from sandbox_agent.files.condition import Condition
from sandbox_agent.files.patching import Patching
from sandbox_agent.files.places import Places

# It changes one file, creates one in a new directory, removes one, and renames one.
PATCH = """\
--- a/changed
+++ b/changed
@@ -1 +1 @@
-old
+new
--- /dev/null
+++ b/made/here
@@ -0,0 +1 @@
+made
--- a/gone
+++ /dev/null
@@ -1 +0,0 @@
-gone
diff --git a/from b/to
rename from from
rename to to
"""
NAMES = ("changed", "made/here", "gone", "from", "to")
BEFORE = {"changed": "old\n", "gone": "gone\n", "from": "moved\n", "other": "kept\n"}
AFTER = {"changed": "new\n", "made/here": "made\n", "to": "moved\n", "other": "kept\n"}
CALLS = ("link", "rename", "unlink")
KILLED = 42


def files(root: Path) -> dict[str, str]:
    return {
        path.relative_to(root).as_posix(): path.read_text()
        for path in root.rglob("*")
        if path.is_file()
    }


def prepared(root: Path) -> Places:
    for name, text in BEFORE.items():
        (root / name).write_text(text)
    return Places(str(root), anywhere=False)


def applied(places: Places) -> None:
    Patching(places, PATCH, {name: name for name in NAMES}, Condition()).apply()


def killed(work: Callable[[], None], calls: int) -> bool:
    """Whether a process that does this work is killed before so many calls change a directory."""
    child = os.fork()
    if child == 0:
        left = calls

        def counted(call: Callable[..., None]) -> Callable[..., None]:
            def counting(*args: object, **options: object) -> None:
                nonlocal left
                if not left:
                    os._exit(KILLED)
                left -= 1
                call(*args, **options)

            return counting

        for name in CALLS:
            setattr(os, name, counted(getattr(os, name)))
        try:
            work()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == KILLED


def test_it_is_all_or_nothing_wherever_it_is_killed(tmp_path: Path) -> None:
    found = []
    for calls in range(100):
        root = tmp_path / str(calls)
        root.mkdir()
        places = prepared(root)
        was_killed = killed(lambda places=places: applied(places), calls)  # type: ignore[misc]
        journal.recover(places, Condition())
        left = files(root)
        assert left in (BEFORE, AFTER), calls
        found.append(left == AFTER)
        if not was_killed:
            break
    # Once it is decided it happens.
    assert found == sorted(found)
    assert found.count(False) > 3
    assert found.count(True) > 3
    assert not was_killed


def test_a_recovery_may_be_killed_too(tmp_path: Path) -> None:
    for calls in range(100):
        root = tmp_path / str(calls)
        root.mkdir()
        places = prepared(root)
        # Five names beside the files and two journals come before the decision is read.
        assert killed(lambda places=places: applied(places), 9)  # type: ignore[misc]
        again = killed(lambda places=places: recovered(places), calls)  # type: ignore[misc]
        recovered(places)
        assert files(root) == AFTER
        if not again:
            break
    assert calls > 3


def recovered(places: Places) -> None:
    journal.recover(places, Condition())


def test_a_file_that_came_meanwhile_is_not_removed(tmp_path: Path) -> None:
    places = prepared(tmp_path)
    steps = [["gone", None, "0" * 32], ["changed", ".paddock-" + "1" * 16, None]]
    (tmp_path / journal.NAME).write_text(json.dumps({"decided": True, "steps": steps}))
    assert journal.recover(places, Condition()) == 2
    assert files(tmp_path) == BEFORE


def test_if_a_step_is_impossible_nothing_is_changed(tmp_path: Path) -> None:
    places = prepared(tmp_path)
    (tmp_path / "to").mkdir()
    with pytest.raises((OSError, AgentError)):
        applied(places)
    assert files(tmp_path) == BEFORE


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.one_of(
        st.binary(max_size=100),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(max_size=5),
            lambda inner: (
                st.lists(inner, max_size=4)
                | st.dictionaries(st.sampled_from(["decided", "steps"]), inner)
            ),
            max_leaves=10,
        ).map(lambda value: json.dumps(value).encode()),
        st.lists(
            st.lists(st.sampled_from(["a", "../a", "/etc/x", "changed", "/", "", None]), max_size=4)
        ).map(lambda steps: json.dumps({"decided": True, "steps": steps}).encode()),
    )
)
def test_anything_else_in_its_place_is_removed(tmp_path: Path, data: bytes) -> None:
    places = prepared(tmp_path)
    (tmp_path / journal.NAME).write_bytes(data)
    journal.recover(places, Condition())
    assert files(tmp_path) == BEFORE
