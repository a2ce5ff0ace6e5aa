"""The pure parts of templates that E2B's clients build."""

import json
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.compat.e2b.builds.bodies import BuildBody, StepBody
from api.compat.e2b.builds.builds import Build
from api.compat.e2b.builds.built import (
    Built,
    Start,
    assigned,
    build_of,
    parsed_name,
    removed,
    superseded,
    tagged,
    texts,
)
from api.compat.e2b.builds.reuse import Recipe, beginning, digests, shareable
from api.compat.e2b.builds.steps import HOME, Copy, Enter, Plan, Run, plan
from api.shape.objects import validated
from orchestrator.ground.errors import ValidationError
from paddock.contract.base import model_example
from paddock.contract.snapshots import NamedSnapshot


def planned(*steps: dict[str, Any], **variables: str) -> Plan:
    body = validated(BuildBody, {"steps": list(steps)})
    return plan(body.steps or [], variables)


def step(kind: str, *args: str, **others: Any) -> dict[str, Any]:
    return {"type": kind, "args": list(args), **others}


def kept(metadata: dict[str, str]) -> NamedSnapshot:
    return NamedSnapshot.model_validate({**model_example(NamedSnapshot), "metadata": metadata})


def built(name: str, *tags: str, at: str = "", **start: Any) -> Built:
    begins = Start(HOME, start.get("variables", {}), start.get("command"), None)
    since = dict.fromkeys(tags, at)
    level = {"permission_level": "high"}
    return Built("snap-0", str(uuid4()), name, since, tags, at, level, begins)


def test_lines_run_where_and_with_what_was_set_before() -> None:
    found = planned(
        step("RUN", "first"),
        step("ENV", "A", "1", "PATH", f"{HOME}/bin:$PATH", "B", "${A}\\$"),
        step("WORKDIR", "app"),
        step("USER", "root"),
        step("WORKDIR", "src"),
        step("RUN", "second", "root"),
        step("WORKDIR", "/"),
    )
    directories = [each for each in found.steps if isinstance(each, Enter)]
    first, second = (each for each in found.steps if isinstance(each, Run))
    assert (first.directory, first.variables) == (HOME, {})
    assert (second.number, second.directory) == (6, f"{HOME}/app/src")
    path = f"{HOME}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    # A value of an ENV sees what earlier ones have set.
    assert second.variables == {"A": "1", "PATH": path, "B": "$"}
    assert [each.directory for each in directories] == [f"{HOME}/app", f"{HOME}/app/src", HOME]
    assert (found.directory, found.variables) == (HOME, second.variables)


@pytest.mark.parametrize(
    ("source", "wanted", "placed"),
    [
        ("a.txt", "b.txt", f"{HOME}/b.txt"),
        ("./a/", f"{HOME}/a/", f"{HOME}/a/"),
        (".", ".", f"{HOME}/"),
        ("*.txt", "texts/", f"{HOME}/texts/"),
        ("a", "x/../y", f"{HOME}/y"),
    ],
)
def test_files_are_placed_below_the_home(source: str, wanted: str, placed: str) -> None:
    (found,) = planned(step("COPY", source, wanted, "", "0755", filesHash="ab")).steps
    assert isinstance(found, Copy)
    assert (found.destination, found.mode, found.files) == (placed, "0755", "ab")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (step("RUN"), "RUN needs"),
        (step("RUN", ""), "RUN needs"),
        (step("COPY", "a"), "COPY needs 2"),
        (step("COPY", "a", "b"), "filesHash"),
        (step("COPY", "../a", "b", filesHash="x"), "below the directory of the build"),
        (step("COPY", "/etc", "b", filesHash="x"), "below the directory of the build"),
        (step("COPY", "a", "/etc/b", filesHash="x"), HOME),
        (step("COPY", "a", "../../b", filesHash="x"), HOME),
        (step("COPY", "a", "b", "", "u+s", filesHash="x"), "octal"),
        (step("COPY", "a", "b", "", "4755", filesHash="x"), "octal"),
        (step("WORKDIR", "/app"), HOME),
        (step("WORKDIR", "../other"), HOME),
        (step("ENV", "A"), "names and values"),
        (step("ENV", "A=B", "1"), "not a name"),
        (step("ENV", "A", "x" * 40_000), "bytes"),
    ],
)
def test_a_step_that_can_not_be_kept_is_named(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=r"^step 2: ") as caught:
        planned(step("RUN", "true"), wrong)
    assert said in caught.value.detail
    assert caught.value.fields["field"] == "steps.1.args"


@given(
    st.lists(
        st.builds(
            lambda kind, args, files: {"type": kind, "args": args, "filesHash": files},
            st.sampled_from(["COPY", "ENV", "RUN", "WORKDIR", "USER"]),
            st.lists(
                st.one_of(st.text(max_size=20), st.sampled_from(["..", "/", "a", f"{HOME}/a"])),
                max_size=5,
            ),
            st.sampled_from([None, "ab"]),
        ),
        max_size=8,
    )
)
def test_whatever_is_sent_nothing_leaves_the_home(steps: list[dict[str, Any]]) -> None:
    try:
        found = plan([validated(StepBody, each) for each in steps], {})
    except ValidationError:
        return
    for each in found.steps:
        place = each.destination if isinstance(each, Copy) else each.directory
        assert place.rstrip("/") == HOME or place.startswith(f"{HOME}/")
        assert "/../" not in f"{place}/"


def test_a_value_can_not_grow_without_end() -> None:
    doubled = [step("ENV", "A", "x" * 20_000)] + [step("ENV", "A", "$A$A$A$A")] * 200
    with pytest.raises(ValidationError, match="at most"):
        planned(*doubled)


def test_a_snapshot_says_what_was_built() -> None:
    build = built("web", "v1", "stable", variables={"A": "ü\n"}, command="serve")
    found = build_of(kept(texts(build)))
    assert found is not None
    assert (found.build_id, found.name) == (build.build_id, "web")
    assert found.tags == dict.fromkeys(("v1", "stable"), found.created_at)
    assert (found.base, found.start, found.digest) == (build.base, build.start, None)
    assert build_of(kept(texts(replace(build, digest="ab")))) != found
    with pytest.raises(ValidationError, match="too long together"):
        texts(built("web", command="x" * 9000))


@given(
    st.one_of(
        st.text(),
        st.recursive(
            st.one_of(st.none(), st.integers(), st.text(max_size=5)),
            lambda inner: st.dictionaries(
                st.sampled_from(["id", "name", "tags", "base", "directory", "variables"]), inner
            ),
        ).map(json.dumps),
    )
)
def test_texts_that_another_client_has_written_are_no_build(text: str) -> None:
    assert build_of(kept({"e2b.build": text})) is None
    assert build_of(kept({})) is None


def test_a_tag_is_that_of_the_newest_build() -> None:
    old = built("web", "v1", "default", at="1")
    middle, new = built("web", "v1", at="2"), built("web", "default", at="3")
    newest_first = [new, middle, old]
    assert tagged(newest_first, "web", None) is new
    assert tagged(newest_first, "web", "v1") is middle
    assert tagged(newest_first, "web", "v2") is None
    assert tagged(newest_first, "other", None) is None
    assert superseded(newest_first) == [old]
    assert superseded([built("a", "x"), built("b", "x")]) == []


def test_a_tag_that_was_assigned_later_is_that_of_an_older_build() -> None:
    old, new = built("web", "v1", at="1"), built("web", "default", at="2")
    old = replace(old, tags={**old.tags, "default": "3"})
    assert tagged([new, old], "web", None) is old
    assert superseded([new, old]) == [new]
    # It is in neither build any more.
    assert tagged([replace(new, tags={}), replace(old, tags={})], "web", None) is None


def test_tags_are_changed_by_texts_of_their_own() -> None:
    build = built("web", "v1", "v2")
    at = "2026-03-04T09:30:12.482113Z"
    metadata = {**texts(build), **assigned(["v3", "v2"], at), **removed(build, "v1")}
    found = build_of(kept({name: text for name, text in metadata.items() if text is not None}))
    assert found is not None
    assert found.tags == {"v2": at, "v3": at}
    # A tag that was not there at first leaves no text behind.
    assert removed(found, "v3") == {"e2b.tag.v3": None}
    for wrong in ({"e2b.tag.a b": at}, {"e2b.tag.v9": "later"}, {"e2b.tag.": at}):
        other = build_of(kept({**texts(build), **wrong}))
        assert other is not None
        assert set(other.tags) == {"v1", "v2"}, wrong


BEGUN: dict[str, Any] = {"level": ["high", "ab"], "images": ["sha256:0"], "snapshot": None}


def recipe(*steps: dict[str, Any], command: str | None = None, **others: Any) -> Recipe:
    body = validated(BuildBody, {"steps": list(steps), **others})
    known = digests(BEGUN, body.steps or [])
    planned = plan(body.steps or [], {})
    return Recipe({}, planned, Start(HOME, {}, command, None), known, shareable(body))


def made(like: Recipe) -> Built:
    return replace(built("web", "default"), digest=like.digest)


ONE, TWO, THREE = (
    step("RUN", "one"),
    step("COPY", "a", "b", filesHash="ab"),
    step("ENV", "A", "1"),
)


def test_what_an_earlier_build_has_done_alike_is_not_done_again() -> None:
    short, long = made(recipe(ONE)), made(recipe(ONE, TWO))
    builds = [short, long]
    assert beginning(builds, recipe(ONE, TWO, THREE)) == (long, 2)
    assert beginning(builds, recipe(ONE, TWO)) == (long, 2)
    assert beginning(builds, recipe(ONE, THREE)) == (short, 1)
    # Files, an argument, a kind or an order that differs makes another state.
    for other in (
        [step("RUN", "one", "root")],
        [TWO, ONE],
        [step("RUN", "two"), TWO],
        [step("USER", "one")],
    ):
        assert beginning(builds, recipe(*other)) is None, other
    assert beginning(builds, recipe(ONE, {**TWO, "filesHash": "cd"})) == (short, 1)
    assert beginning(builds, recipe()) is None
    assert beginning([made(recipe())], recipe(ONE)) is None
    assert beginning([built("web", "default")], recipe(ONE)) is None


def test_what_a_build_begins_with_is_in_every_digest() -> None:
    for other in ({"level": ["high", "cd"]}, {"images": ["sha256:1"]}, {"snapshot": "snap-0"}):
        steps = validated(BuildBody, {"steps": [ONE]}).steps or []
        assert not {*digests(BEGUN, steps)} & {*digests({**BEGUN, **other}, steps)}
    # What it does is not known, so nothing is taken over.
    assert beginning([made(recipe(ONE))], replace(recipe(ONE), states=None)) is None
    assert replace(recipe(ONE), states=None).digest is None


def test_what_is_forced_is_done_again_with_all_after_it() -> None:
    build = made(recipe(ONE, TWO))
    first = made(recipe(ONE))
    assert beginning([build, first], recipe(ONE, {**TWO, "force": True})) == (first, 1)
    assert beginning([build], recipe({**ONE, "force": True}, TWO)) is None
    assert beginning([build], recipe(ONE, TWO, force=True)) is None
    assert beginning([build], recipe(ONE, TWO, force=None)) == (build, 2)


def test_a_build_that_has_started_something_serves_the_same_whole_only() -> None:
    serving = made(recipe(ONE, command="serve"))
    assert beginning([serving], recipe(ONE, command="serve")) == (serving, 1)
    assert beginning([serving], recipe(ONE, command="other")) is None
    assert beginning([serving], recipe(ONE)) is None
    assert beginning([serving], recipe(ONE, TWO, command="serve")) is None
    plain = made(recipe(ONE))
    assert beginning([serving, plain], recipe(ONE, command="serve")) == (plain, 1)


@pytest.mark.parametrize("name", ["", "a b", "team/name", "a:", ":v", "a:b:c", "-a", "x" * 64, "ü"])
def test_names(name: str) -> None:
    assert parsed_name("Web-1_a:V1.2") == ("web-1_a", "V1.2")
    assert parsed_name("web") == ("web", None)
    with pytest.raises(ValidationError, match="name must be"):
        parsed_name(name)


async def test_a_log_keeps_its_latest_lines() -> None:
    build = Build("key", "web", ("default",), "secret")
    build.log("\n".join(str(number) for number in range(1990)))
    build.log("x" * 10_000, "error", "3")
    build.log("\n".join("last" for _ in range(50)))
    assert build.entries(0, 1)[0]["message"] == "41"
    (long,) = build.entries(1990, 1)
    assert (len(long["message"]), long["level"], long["step"]) == (4096, "error", "3")
    assert len(build.entries(2000, 100)) == 41
    assert build.entries(5000, 100) == []
    build.begun.cancel()
