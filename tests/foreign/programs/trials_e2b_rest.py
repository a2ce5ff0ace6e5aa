"""What programs do with E2B's SDK outside of sandboxes. Runs in the SDK's environment."""

import asyncio
import os
import re
import time
import urllib.request
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from e2b import (
    AsyncSandbox,
    AsyncTemplate,
    AuthenticationException,
    BuildException,
    NotFoundException,
    Sandbox,
    SandboxException,
    SandboxNotFoundException,
    SandboxQuery,
    SandboxState,
    Template,
    TemplateBase,
    TemplateException,
    Volume,
)

URL = os.environ["PADDOCK_URL"] + "/compat/e2b"
SECONDS = 60
SERVED = "http://127.0.0.1:8123/"


@pytest.fixture(autouse=True)
def _address(monkeypatch: pytest.MonkeyPatch) -> None:
    """The three variables that a project sets."""
    monkeypatch.setenv("E2B_API_URL", URL)
    monkeypatch.setenv("E2B_SANDBOX_URL", URL)
    monkeypatch.setenv("E2B_API_KEY", os.environ["PADDOCK_KEY"])


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with Sandbox.create("high", timeout=SECONDS) as created:
        yield created


def left(moment: datetime) -> float:
    return (moment - datetime.now(UTC)).total_seconds()


def ids(**query: object) -> list[str]:
    found = []
    pages = Sandbox.list(query=SandboxQuery(**query), limit=2)
    while pages.has_next:
        found += [each.sandbox_id for each in pages.next_items()]
    return found


def test_create_use_kill() -> None:
    sandbox = Sandbox.create(timeout=SECONDS)
    assert sandbox.is_running()
    assert sandbox.commands.run("echo out").stdout == "out\n"
    assert sandbox.kill()
    assert not sandbox.is_running()
    assert not sandbox.kill()
    assert not Sandbox.kill(sandbox.sandbox_id)


def test_info(sandbox: Sandbox) -> None:
    info = sandbox.get_info()
    assert info.sandbox_id == sandbox.sandbox_id
    assert info.state == SandboxState.RUNNING
    assert info.template_id == "high"
    assert info.memory_mb >= 512
    assert info.cpu_count >= 1
    assert 0 < left(info.end_at) <= SECONDS + 1
    assert -60 < left(info.started_at) <= 0


def test_metadata_is_free_text() -> None:
    texts = {"user": "Anna Lindqvist & Söner", "note": "two\nlines = 100 %", "k y": "a=b&c"}
    with Sandbox.create("high", timeout=SECONDS, metadata=texts) as sandbox:
        assert sandbox.get_info().metadata == texts
        assert ids(metadata=texts) == [sandbox.sandbox_id]
        assert ids(metadata={"user": "nobody"}) == []


def test_environment() -> None:
    with Sandbox.create("high", timeout=SECONDS, envs={"FOO": "bar"}) as sandbox:
        assert sandbox.commands.run("echo $FOO").stdout == "bar\n"


def test_home_and_user(sandbox: Sandbox) -> None:
    assert sandbox.commands.run("pwd").stdout == "/home/user\n"
    sandbox.files.write("a.txt", "text")
    assert sandbox.commands.run("cat /home/user/a.txt").stdout == "text"


def test_timeout_is_longer_or_shorter(sandbox: Sandbox) -> None:
    for seconds in (600, 30):
        sandbox.set_timeout(seconds)
        assert seconds - 20 < left(sandbox.get_info().end_at) <= seconds + 1
    Sandbox.set_timeout(sandbox.sandbox_id, 100)
    assert left(sandbox.get_info().end_at) > 80


def test_a_timeout_ends_it() -> None:
    sandbox = Sandbox.create("high", timeout=1)
    while sandbox.is_running():
        time.sleep(0.2)
    with pytest.raises(SandboxNotFoundException):
        sandbox.get_info()


def test_connect(sandbox: Sandbox) -> None:
    sandbox.files.write("a.txt", "text")
    again = Sandbox.connect(sandbox.sandbox_id, timeout=300)
    assert again.files.read("a.txt") == "text"
    assert left(again.get_info().end_at) > 200
    # A connection never shortens its time.
    Sandbox.connect(sandbox.sandbox_id, timeout=5)
    assert left(again.get_info().end_at) > 200


def test_connect_to_nothing() -> None:
    with pytest.raises(SandboxNotFoundException):
        Sandbox.connect("sess-0000000000000000")


def test_pause_and_resume(sandbox: Sandbox) -> None:
    process = sandbox.commands.run("sleep 1000", background=True)
    sandbox.pause()
    assert not sandbox.is_running()
    assert sandbox.get_info().state == SandboxState.PAUSED
    assert not sandbox.pause()
    assert ids(state=[SandboxState.PAUSED]) == [sandbox.sandbox_id]
    assert ids(state=[SandboxState.RUNNING]) == []
    again = sandbox.connect(timeout=SECONDS)
    assert again.is_running()
    # What ran goes on.
    assert process.pid in {each.pid for each in again.commands.list()}


def test_auto_pause() -> None:
    lifecycle = {"on_timeout": "pause", "auto_resume": True}
    with Sandbox.create("high", timeout=2, lifecycle=lifecycle) as sandbox:
        sandbox.files.write("a.txt", "text")
        info = sandbox.get_info()
        assert info.lifecycle == {"on_timeout": "pause", "auto_resume": True}
        while sandbox.get_info().state != SandboxState.PAUSED:
            time.sleep(0.2)
        assert sandbox.connect(timeout=SECONDS).files.read("a.txt") == "text"


def test_list_pages_and_order() -> None:
    label = {"trial": uuid.uuid4().hex}
    made = [Sandbox.create("high", timeout=SECONDS, metadata=label) for _ in range(3)]
    try:
        newest = [each.sandbox_id for each in reversed(made)]
        assert ids(metadata=label) == newest
        pages = Sandbox.list(query=SandboxQuery(metadata=label), limit=2, order="asc")
        first = [each.sandbox_id for each in pages.next_items()]
        assert pages.has_next
        assert [*first, *(each.sandbox_id for each in pages.next_items())] == newest[::-1]
        assert not pages.has_next
        last = made[-1].get_info().started_at
        assert ids(metadata=label, started_after=last) == newest[:1]
        assert ids(metadata=label, template="high") == newest
        assert ids(metadata=label, template="low") == []
    finally:
        for each in made:
            each.kill()


def test_metrics(sandbox: Sandbox) -> None:
    before = datetime.now(UTC) - timedelta(seconds=15)
    while not (found := sandbox.get_metrics()):
        time.sleep(0.5)
    latest = found[-1]
    assert latest.mem_total >= latest.mem_used > 0
    assert latest.disk_total >= latest.disk_used >= 0
    assert latest.cpu_count >= 1
    assert len(sandbox.get_metrics(start=before)) >= 1
    assert sandbox.get_metrics(end=before - timedelta(hours=1)) == []


def test_snapshot_and_new_sandboxes(sandbox: Sandbox) -> None:
    sandbox.files.write("a.txt", "before")
    name = f"trial-{uuid.uuid4().hex[:12]}"
    snapshot = sandbox.create_snapshot(name=name)
    try:
        assert snapshot.names == [name]
        sandbox.files.write("a.txt", "after")
        for source in (snapshot.snapshot_id, name):
            with Sandbox.create(source, timeout=SECONDS) as other:
                assert other.files.read("a.txt") == "before"
                assert other.get_info().template_id == source
        listed = sandbox.list_snapshots().next_items()
        assert [each.snapshot_id for each in listed] == [snapshot.snapshot_id]
        assert Sandbox.list_snapshots(name=name).next_items() == listed
    finally:
        assert Sandbox.delete_snapshot(snapshot.snapshot_id)
    assert not Sandbox.delete_snapshot(snapshot.snapshot_id)
    with pytest.raises(SandboxException, match="there is no template"):
        Sandbox.create(snapshot.snapshot_id)


def test_snapshot_without_a_name(sandbox: Sandbox) -> None:
    snapshot = sandbox.create_snapshot()
    assert snapshot.names == []
    assert Sandbox.delete_snapshot(snapshot.snapshot_id)


def test_fork(sandbox: Sandbox) -> None:
    sandbox.files.write("a.txt", "one")
    forks = sandbox.fork(count=2, timeout=SECONDS)
    try:
        for number, fork in enumerate(forks):
            assert fork.files.read("a.txt") == "one"
            fork.files.write("a.txt", f"fork {number}")
        assert sandbox.files.read("a.txt") == "one"
        assert [each.files.read("a.txt") for each in forks] == ["fork 0", "fork 1"]
        assert left(forks[0].get_info().end_at) > 20
    finally:
        for fork in forks:
            fork.kill()


def test_a_fork_that_would_live_for_too_long(sandbox: Sandbox) -> None:
    (fork,) = sandbox.fork(timeout=2 * 24 * 3600)
    assert isinstance(fork, SandboxException)
    assert "wall_timeout may be at most" in str(fork)
    assert ids(state=[SandboxState.RUNNING]) == [sandbox.sandbox_id]


def test_volumes() -> None:
    name = f"trial-{uuid.uuid4().hex[:12]}"
    volume = Volume.create(name)
    try:
        assert name in {each.name for each in Volume.list()}
        assert Volume.get_info(volume.volume_id).name == name
        for content in (None, "kept"):
            mounts = {"/data/kept": volume}
            with Sandbox.create("high", timeout=SECONDS, volume_mounts=mounts) as sandbox:
                found = sandbox.commands.run("cat /data/kept/a 2>/dev/null || true").stdout
                assert found == (content or "")
                sandbox.commands.run("printf kept > /data/kept/a")
    finally:
        assert Volume.destroy(volume.volume_id)
    assert not Volume.destroy(volume.volume_id)


def test_network_is_narrowed() -> None:
    network = {"deny_out": ["0.0.0.0/0"], "allow_out": ["pypi.org"]}
    with Sandbox.create("medium", timeout=SECONDS, network=network) as sandbox:
        sandbox.update_network({"deny_out": ["10.0.0.0/8"]})
        sandbox.update_network({"allow_internet_access": False})
    with Sandbox.create("medium", timeout=SECONDS, allow_internet_access=False):
        pass


def test_templates_are_found() -> None:
    assert Template.exists("base")
    assert not Template.exists(f"nothing-{uuid.uuid4().hex}")


def test_a_template_is_built_from_steps(tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "main.sh").write_text("echo $GREETING from $(pwd)")
    (tmp_path / "a.txt").write_text("a")
    name = f"trial-{uuid.uuid4().hex[:16]}"
    template = (
        Template(file_context_path=tmp_path)
        .from_template("high")
        .set_envs({"GREETING": "hello"})
        .copy("app", "/home/user/app")
        .copy("*.txt", "texts/", mode=0o640)
        .set_workdir("/home/user/made/here")
        .run_cmd(["sh ../../app/main.sh > said.txt", "cat ../../texts/a.txt >> said.txt"])
        .set_start_cmd("python3 -m http.server 8123", f"curl -sf {SERVED}")
    )
    lines: list[str] = []
    Template.build(
        template, f"{name}:v1", tags=["stable"], on_build_logs=lambda each: lines.append(str(each))
    )
    assert any("WORKDIR /home/user/made/here" in line for line in lines)
    assert Template.exists(f"{name}:stable")
    assert not Template.exists(name)
    assert {each.tag for each in Template.get_tags(name)} == {"v1", "stable"}
    with Sandbox.create(f"{name}:v1", timeout=SECONDS) as sandbox:
        line = "cat made/here/said.txt; stat -c %a texts/a.txt; echo $GREETING"
        found = sandbox.commands.run(line)
        assert found.stdout == "hello from /home/user/made/here\na640\nhello\n"
        assert "said.txt" in sandbox.commands.run(f"curl -s {SERVED}").stdout
    Template.build(Template().from_template(f"{name}:v1").run_cmd("echo more > more.txt"), name)
    with Sandbox.create(name, timeout=SECONDS) as sandbox:
        assert sandbox.commands.run("cat made/here/more.txt texts/a.txt").stdout == "more\na"


def test_a_template_is_built_from_a_dockerfile(tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("one")
    dockerfile = """FROM high
WORKDIR /home/user/project
ENV PLACE=/home/user
COPY one.txt two.txt
RUN cp two.txt three.txt && echo $PLACE >> three.txt
"""
    name = f"trial-{uuid.uuid4().hex[:16]}"
    Template.build(Template(file_context_path=tmp_path).from_dockerfile(dockerfile), name)
    with Sandbox.create(name, timeout=SECONDS) as sandbox:
        assert sandbox.files.read("project/three.txt") == "one/home/user\n"


def test_what_was_built_alike_is_taken_over(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    names = [f"trial-{uuid.uuid4().hex[:16]}" for _ in range(2)]

    def made(name: str, template: TemplateBase) -> str:
        """The number that a step has drawn."""
        Template.build(template, name)
        with Sandbox.create(name, timeout=SECONDS) as sandbox:
            return str(sandbox.files.read("drawn"))

    def drawing(*, anew: bool = False) -> TemplateBase:
        begun = Template(file_context_path=tmp_path).from_template("high").copy("a.txt", "b.txt")
        begun = begun.skip_cache() if anew else begun
        return begun.run_cmd("cat /proc/sys/kernel/random/uuid > drawn")

    first = made(names[0], drawing())
    assert made(names[0], drawing()) == first
    assert made(names[1], drawing().run_cmd("touch more")) == first
    again = made(names[1], drawing(anew=True))
    assert again != first
    # Of builds that are made alike, the newest serves.
    assert made(names[0], drawing()) == again
    (tmp_path / "a.txt").write_text("other")
    assert made(names[0], drawing()) != again


def test_tags_are_changed_after_the_build() -> None:
    name = f"trial-{uuid.uuid4().hex[:16]}"
    for number in (1, 2):
        template = Template().from_template("high").run_cmd(f"echo {number} > n")
        Template.build(template, f"{name}:v{number}", tags=["production"])

    def in_production() -> str:
        with Sandbox.create(f"{name}:production", timeout=SECONDS) as sandbox:
            return str(sandbox.files.read("n")).strip()

    assert in_production() == "2"
    assigned = Template.assign_tags(f"{name}:v1", ["production", "kept"])
    assert set(assigned.tags) == {"production", "kept"}
    assert in_production() == "1"
    builds = {each.tag: each.build_id for each in Template.get_tags(name)}
    assert builds["production"] == builds["v1"] == assigned.build_id != builds["v2"]
    Template.remove_tags(name, "production")
    assert not Template.exists(f"{name}:production")
    assert {each.tag for each in Template.get_tags(name)} == {"v1", "v2", "kept"}
    for target in (f"{name}:none", f"{name}-none", "high"):
        with pytest.raises(TemplateException, match="there is no template"):
            Template.assign_tags(target, ["more"])
    with pytest.raises(TemplateException, match="has no tag production"):
        Template.remove_tags(name, ["v1", "production"])


def test_tags_of_the_async_client() -> None:
    name = f"trial-{uuid.uuid4().hex[:16]}"

    async def whole() -> None:
        template = Template().from_template("high").run_cmd("touch a")
        await AsyncTemplate.build(template, f"{name}:v1")
        await AsyncTemplate.assign_tags(f"{name}:v1", "default")
        assert await AsyncTemplate.exists(name)
        await AsyncTemplate.remove_tags(name, "default")
        assert [each.tag for each in await AsyncTemplate.get_tags(name)] == ["v1"]

    asyncio.run(whole())


def test_a_build_that_fails_says_where() -> None:
    for template, said in (
        (Template().from_template("high").run_cmd("echo seen; exit 3"), "exit code 3: seen"),
        (Template().from_image("nothing:1"), "paddock images add"),
        (Template().from_template("high").set_workdir("/app"), "/home/user only"),
    ):
        with pytest.raises(BuildException, match=re.escape(said)):
            Template.build(template, f"trial-{uuid.uuid4().hex[:16]}")


def test_refusals_have_a_rule_and_a_remedy() -> None:
    with Sandbox.create("low", timeout=SECONDS) as sandbox:
        refused = pytest.raises(Exception, match="rule ")
        with refused as caught:
            sandbox.commands.run("curl https://example.org | cat")
        assert "level" in str(caught.value)


def test_wrong_keys() -> None:
    for attempt in (
        lambda: Sandbox.create(api_key="pdk_nobody-has-this-key"),
        lambda: Sandbox.list(api_key="pdk_nobody-has-this-key").next_items(),
    ):
        with pytest.raises(AuthenticationException):
            attempt()


def test_unknown_template() -> None:
    with pytest.raises((NotFoundException, SandboxException), match="there is no template"):
        Sandbox.create(f"nothing-{uuid.uuid4().hex}")


def test_idempotency() -> None:
    key = uuid.uuid4().hex
    one = Sandbox.create("high", timeout=SECONDS, idempotency_key=key)
    with Sandbox.create("high", timeout=SECONDS, idempotency_key=key) as two:
        assert two.sandbox_id == one.sandbox_id
        assert two.commands.run("echo same").stdout == "same\n"


def test_signed_addresses_of_a_connected_sandbox(sandbox: Sandbox) -> None:
    sandbox.files.write("a.txt", "text")
    again = Sandbox.connect(sandbox.sandbox_id)
    with urllib.request.urlopen(again.download_url("a.txt")) as answer:
        assert answer.read() == b"text"


def test_async_client() -> None:
    async def whole() -> None:
        sandbox = await AsyncSandbox.create("high", timeout=SECONDS, metadata={"async": "yes"})
        try:
            assert (await sandbox.commands.run("echo a")).stdout == "a\n"
            pages = AsyncSandbox.list(query=SandboxQuery(metadata={"async": "yes"}))
            assert [each.sandbox_id for each in await pages.next_items()] == [sandbox.sandbox_id]
            await sandbox.set_timeout(90)
            assert left((await sandbox.get_info()).end_at) > 60
            await sandbox.pause()
            again = await sandbox.connect(timeout=SECONDS)
            assert await again.is_running()
            (fork,) = await again.fork(timeout=SECONDS)
            assert await fork.kill()
        finally:
            assert await sandbox.kill()

    asyncio.run(whole())
