"""Access outside the workspace at levels that allow any command."""

import re
from pathlib import Path

import pytest

from orchestrator.ground.errors import (
    ConflictError,
    NotFoundError,
    PermissionDeniedError,
    ValidationError,
)
from tests.conftest import BoxFactory
from tests.support.attempts import attempt
from tests.support.box import TESTER, Box
from tests.support.plane import opened

pytestmark = pytest.mark.asyncio(loop_scope="module")

WORD_BYTES = 128 * 1024 - 1


# Working directories


@pytest.mark.parametrize("cwd", ["/usr/bin", "/tmp", "/", "../usr/lib/.."])
async def test_a_command_starts_anywhere(high: Box, cwd: str) -> None:
    done = await high.run(argv=["pwd", "-P"], cwd=cwd)
    assert done.stdout == {"../usr/lib/..": "/usr"}.get(cwd, cwd) + "\n"
    directories = [event["args"]["cwd"] for event in await high.events("command.start")]
    assert done.stdout.strip() in directories


@pytest.mark.parametrize("cwd", ["/root", "/proc/1/cwd", "/run/paddock"])
async def test_but_not_where_its_user_may_not(high: Box, cwd: str) -> None:
    done = await high.run(argv=["pwd"], cwd=cwd)
    assert (done.exit_code, done.stdout) == (126, "")
    assert "Permission denied" in done.stderr
    assert (await high.run(argv=["pwd"], cwd="/nowhere")).exit_code == 127


async def test_other_levels_stay_in_the_workspace(low: Box, medium: Box) -> None:
    for box in (low, medium):
        with pytest.raises(ValidationError, match="cwd must stay under /workspace"):
            await box.run("ls", cwd="/tmp")


async def test_words_that_write_are_held_to_what_is_writable(high: Box) -> None:
    for cwd in ("/", "/usr"):
        with pytest.raises(PermissionDeniedError) as refused:
            await high.run(argv=["touch", "here"], cwd=cwd)
        assert refused.value.fields["rule"] == "write-outside-workspace"
    done = await high.run(argv=["touch", "/workspace/there", "here"], cwd="/tmp")
    assert done.exit_code == 0, done.stderr
    assert (high.workspace / "there").exists()
    assert await high.read("/tmp/here") == b""


async def test_words_write_wherever_the_kernel_lets_them(high: Box) -> None:
    await high.write("given", b"text")
    for argv in (
        ["mkdir", "-p", "/tmp/a/b", "/dev/shm/a"],
        ["touch", "/tmp/a/new"],
        ["cp", "given", "/tmp/a/copy"],
        ["cp", "given", "/dev/shm/a/copy"],
        ["cp", "given", "/dev/null"],
        ["ln", "-s", "/tmp/a", "way"],
        ["touch", "way/through"],
        ["mv", "/tmp/a/copy", "/tmp/a/b/moved"],
        ["mv", "/tmp/a/b/moved", "back"],
        ["rm", "-r", "/dev/shm/a", "/tmp/a/new", "way/through"],
    ):
        done = await high.run(argv=argv)
        assert (done.exit_code, done.stderr) == (0, ""), argv
    assert await high.read("back") == b"text"
    assert (await high.run(argv=["find", "/tmp/a", "/dev/shm"])).stdout.split() == [
        *("/tmp/a", "/tmp/a/b", "/dev/shm"),
    ]


async def test_a_link_to_what_is_not_writable_is_told(high: Box) -> None:
    for argv in (["ln", "-s", "/usr/share", "out"], ["ln", "-s", "/usr/share", "/tmp/out"]):
        assert (await high.run(argv=argv)).exit_code == 0
    for path in ("out/new", "/tmp/out/new"):
        with pytest.raises(PermissionDeniedError) as refused:
            await high.run(argv=["touch", path])
        assert refused.value.fields["rule"] == "path-outside-workspace", path


async def test_words_may_be_as_long_as_the_kernel_takes_them(high: Box) -> None:
    script = "import sys; print(len(sys.argv), sum(map(len, sys.argv[1:])))"
    done = await high.python(script, "x" * WORD_BYTES, *["y" * 100_000] * 17)
    assert done.stdout == f"19 {WORD_BYTES + 1_700_000}\n"
    done = await high.python(script, *["z"] * 30_000)
    assert done.stdout == "30001 30000\n"
    # The kernel refuses longer words, which has no other effect.
    done = await high.python(script, "x" * (WORD_BYTES + 1))
    assert (done.exit_code, done.stdout) == (126, "")
    assert "Argument list too long" in done.stderr
    assert (await high.run(argv=["true"])).exit_code == 0


# Files


async def test_files_of_tmp(high: Box) -> None:
    assert await high.write("/tmp/notes/today", b"content", parents=True) == 7
    assert (await high.bash("cat /tmp/notes/today; stat -c %u /tmp/notes")).stdout == (
        f"content{high.uid}\n"
    )
    assert await high.read("/tmp/notes/today") == b"content"
    assert (await high.stat("/tmp/notes/today")).path == "/tmp/notes/today"
    assert await high.paths("/tmp/notes") == ["/tmp/notes/today"]
    await high.mkdir("/tmp/notes/more/deep")
    await high.move("/tmp/notes/today", "/tmp/notes/more/deep/day")
    assert await high.read("../tmp/notes/more/deep/day") == b"content"
    with pytest.raises(ConflictError, match="another file system"):
        await high.move("/tmp/notes/more/deep/day", "day")
    await high.delete("/tmp/notes/more/deep/day")
    with pytest.raises(NotFoundError):
        await high.read("/tmp/notes/more/deep/day")
    (written,) = (await high.events("file.write"))[-1:]
    assert written["args"]["path"] == "/tmp/notes/today"


async def test_the_root_is_listed_two_levels_deep(high: Box) -> None:
    """Of /proc, /sys, /dev and /run, only the names are listed."""
    await high.write("mine", b"x")
    listing = await high.listing("/", depth=2)
    paths = [item.path for item in listing.entries]
    assert not listing.truncated
    assert paths == sorted(set(paths))
    assert {
        "/.dockerenv",
        "/usr",
        "/usr/bin",
        "/etc/passwd",
        "/workspace/mine",
        "/proc",
        "/dev",
    } <= set(paths)
    tops = {path.split("/")[1] for path in paths if path.count("/") == 2}
    assert tops.isdisjoint({"proc", "sys", "dev", "run"})
    assert {"usr", "etc", "workspace"} <= tops
    assert all(path.startswith("/") and path.count("/") <= 2 for path in paths)
    kinds = {item.path: item.type for item in listing.entries}
    assert (kinds["/proc"], kinds["/bin"]) == ("directory", "symlink")
    # A deeper listing does not enter them either.
    deep = [item.path for item in (await high.listing("/", depth=64)).entries]
    assert "/usr/share/doc" in deep or len(deep) == 10_000
    assert not [path for path in deep if path.startswith(("/proc/", "/sys/", "/dev/", "/run/"))]


async def test_files_of_the_image_are_read(high: Box) -> None:
    release = (await high.bash("cat /etc/os-release")).stdout
    # This path is a link.
    assert (await high.read("/etc/os-release")).decode() == release
    assert "/usr/bin/python3" in await high.paths("/usr/bin")
    assert (await high.stat("/usr")).type == "directory"
    await high.bash("ln -sfn /etc/os-release /tmp/release; ln -sfn /etc/os-release inside")
    assert (await high.read("/tmp/release")).decode() == release
    # A path in the workspace can't lead out of it.
    with pytest.raises(PermissionDeniedError):
        await high.read("inside")


@attempt("files of the kernel, devices, and the agent's own, by the files API", layer="agent",
         levels="high")  # fmt: skip
@pytest.mark.parametrize(
    "path",
    ["/proc/self/mem", "/proc/1/environ", "/proc/self/fd/0", "/proc/self/root/etc/hostname",
     "/sys/kernel/notes", "/dev/zero", "/run/paddock/control.sock", "/etc/shadow", "/tmp/way"],
)  # fmt: skip
async def test_what_is_no_file_of_the_image_is_not_read(high: Box, path: str) -> None:
    await high.bash("ln -sfn /proc/self/environ /tmp/way")
    with pytest.raises(PermissionDeniedError) as refused:
        await high.read(path)
    assert refused.value.fields["rule"] in ("path-outside-workspace", "file-permissions")


@attempt("writing outside of /tmp and the workspace by the files API", layer="agent", levels="high")
@pytest.mark.parametrize("path", ["/etc/new", "/usr/bin/ls", "/dev/shm/x", "/tmp", "/tmp/out/new"])
async def test_nothing_else_is_written(high: Box, path: str) -> None:
    await high.bash("ln -sfn /dev/shm /tmp/out")
    for operation in (high.mkdir, high.delete):
        with pytest.raises(PermissionDeniedError) as refused:
            await operation(path)
        assert refused.value.fields["rule"] == "path-outside-workspace"
    with pytest.raises(PermissionDeniedError):
        await high.write(path, b"x", parents=True)
    assert (await high.bash("ls -A /dev/shm; ls -d /tmp")).stdout == "/tmp\n"


async def test_the_agent_holds_other_levels_to_it_as_well(medium: Box) -> None:
    """The agent refuses such requests even if the control plane lets them through."""
    for method, params in (
        ("file.open", {"op": "read", "path": "/etc/hostname"}),
        ("file.open", {"op": "write", "path": "/tmp/x", "parents": True}),
        ("file.list", {"path": "/tmp", "depth": 1, "limit": 10}),
    ):
        with pytest.raises(PermissionDeniedError):
            await medium.ask(method, **params)


# Everyday mistakes


async def test_reading_a_directory_says_that_it_is_one(low: Box) -> None:
    await low.mkdir("folder")
    with pytest.raises(ConflictError, match="is a directory, not a file: folder; list it"):
        await low.read("folder")
    with pytest.raises(ConflictError, match="is a directory"):
        await low.write("folder", b"x")


async def test_parents_are_made_on_request_with_the_file(low: Box) -> None:
    with pytest.raises(NotFoundError):
        await low.write("new/deep/file", b"x")
    assert not (low.workspace / "new").exists()
    await low.write("new/deep/file", b"x", parents=True)
    assert await low.read("new/deep/file") == b"x"
    await low.write("new/other/log", b"y", mode="append", parents=True)
    assert await low.read("new/other/log") == b"y"
    # If the file is not made, its parents are not made either.
    opened_file = await low.ask("file.open", op="write", path="never/made/file", parents=True)
    await low.ask("file.close", stream=opened_file["stream"], commit=False)
    assert not (low.workspace / "never").exists()
    (low.workspace / "out").symlink_to("/tmp")
    with pytest.raises(PermissionDeniedError):
        await low.write("out/a/b", b"x", parents=True)


async def test_a_protected_file_is_not_replaced(high: Box) -> None:
    await high.write("kept", b"old")
    await high.bash("chmod 444 kept")
    for mode in ("overwrite", "append"):
        with pytest.raises(PermissionDeniedError) as refused:
            await high.write("kept", b"new", mode=mode)
        assert refused.value.fields["rule"] == "file-permissions"
    await high.write("other", b"new")
    with pytest.raises(PermissionDeniedError) as refused:
        await high.move("other", "kept")
    assert refused.value.fields["rule"] == "file-permissions"
    with pytest.raises(PermissionDeniedError) as refused:
        await high.plane.files.symlink(TESTER, high.session, "kept", "other")
    assert refused.value.fields["rule"] == "file-permissions"
    assert await high.read("kept") == b"old"
    assert not (high.workspace / "kept").is_symlink()
    # The file's mode does not prevent a move. Once it is writable, the file may be replaced.
    await high.move("kept", "moved")
    assert (high.workspace / "moved").stat().st_mode & 0o777 == 0o444
    await high.bash("chmod 644 moved")
    await high.move("other", "moved")
    assert await high.read("moved") == b"new"


# An operator's level


async def test_an_operator_can_switch_the_word_rules_off(
    tmp_path: Path, sandbox_image: str
) -> None:
    packaged = Path(__file__).parents[2] / "orchestrator/rules/policy/levels/high.toml"
    text = re.sub(r"rank = \d+", "rank = 400", packaged.read_text())
    levels_dir = tmp_path / "levels"
    levels_dir.mkdir()
    (levels_dir / "open.toml").write_text(f"guard_writes = false\n{text}")
    async with opened(image=sandbox_image, levels_dir=levels_dir) as plane:
        box = await Box.create(plane, "open")
        done = await box.run(argv=["cp", "/etc/hostname", "/tmp/copy"])
        assert (done.exit_code, await box.read("/tmp/copy")) == (0, b"sandbox\n")
        assert (await box.run(argv=["touch", "made"], cwd="/tmp")).exit_code == 0
        # The kernel's boundary remains.
        for argv in (["touch", "/etc/x"], ["cp", "/etc/hostname", "/usr/x"], ["rm", "/usr/bin/ls"]):
            done = await box.run(argv=argv)
            assert done.exit_code != 0, argv
            assert "Read-only file system" in done.stderr or "Permission denied" in done.stderr
        await box.close()


async def test_a_new_session_at_high_keeps_them(new_box: BoxFactory) -> None:
    box = await new_box("high")
    with pytest.raises(PermissionDeniedError) as refused:
        await box.run(argv=["cp", "/etc/hostname", "/opt/copy"])
    assert refused.value.fields["rule"] == "write-outside-workspace"
