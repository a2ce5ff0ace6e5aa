"""Templates that E2B's clients build, in real sandboxes, by plain HTTP."""

import gzip
import io
import tarfile
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from tests.support.root_levels import LEVEL, write_root_level
from tests.support.server import Server, leaving_nothing
from tests.support.until import pause

pytestmark = pytest.mark.asyncio(loop_scope="module")

BASE = "/compat/e2b"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(
    sandbox_image: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Server]:
    levels = tmp_path_factory.mktemp("levels")
    write_root_level(levels, f"root_bytes = {128 * 1024 * 1024}")
    settings = {
        "PADDOCK_IMAGE": sandbox_image,
        "PADDOCK_COMPAT": "e2b",
        "PADDOCK_LEVELS_DIR": str(levels),
    }
    async with leaving_nothing(**settings) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(plane: Server) -> AsyncIterator[aiohttp.ClientSession]:
    headers = {"X-API-KEY": plane.key}
    async with aiohttp.ClientSession(plane.url, headers=headers) as session:
        yield session


async def answer(
    client: aiohttp.ClientSession, status: int, method: str, path: str, **more: Any
) -> Any:
    async with client.request(method, BASE + path, **more) as response:
        text = await response.text()
        assert response.status == status, text
        return await response.json() if text else None


def packed(**files: bytes) -> bytes:
    """A compressed archive, as the SDKs send the files of a copy."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name.replace("__", "/"))
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return gzip.compress(written.getvalue())


async def built(
    client: aiohttp.ClientSession, name: str, files: dict[str, bytes], **body: Any
) -> dict[str, Any]:
    """How a build ended."""
    shown = await answer(client, 202, "POST", "/v3/templates", json={"name": name})
    template, build = shown["templateID"], shown["buildID"]
    for digest, archive in files.items():
        where = await answer(client, 201, "GET", f"/templates/{template}/files/{digest}")
        async with aiohttp.request("PUT", where["url"], data=archive) as response:
            assert response.status == 200, await response.text()
    await answer(client, 202, "POST", f"/v2/templates/{template}/builds/{build}", json=body)
    path = f"/templates/{template}/builds/{build}/status"
    found: dict[str, Any] = await answer(client, 200, "GET", path)
    turns = 0
    while found["status"] not in ("ready", "error"):
        turns += 10
        await pause(turns)
        found = await answer(client, 200, "GET", path)
    return found


def step(kind: str, *args: str, **others: Any) -> dict[str, Any]:
    return {"type": kind, "args": list(args), **others}


async def test_a_template_has_files_variables_and_what_it_starts(
    plane: Server, client: aiohttp.ClientSession
) -> None:
    found = await built(
        client,
        "web:v1",
        {
            "aa": packed(app__main=b"code", app__sub__x=b"x"),
            "bb": packed(one=b"1", two=b"2"),
            "cc": packed(deep__one=b"3"),
        },
        fromTemplate="high",
        steps=[
            step("ENV", "GREETING", "hello"),
            step("WORKDIR", "/home/user/made"),
            step("COPY", "app", ".", filesHash="aa"),
            step("COPY", "*", "/home/user/many/", "", "0640", filesHash="bb"),
            step("COPY", "deep/one", "/home/user/renamed", filesHash="cc"),
            step("RUN", "echo $GREETING > said; ls ~ | cat"),
        ],
        startCmd="python3 -m http.server 8123",
        readyCmd="curl -sf http://127.0.0.1:8123/",
    )
    assert found["status"] == "ready", found
    assert "renamed" in [each["message"] for each in found["logEntries"]]
    body = {"templateID": "web:v1", "envVars": {"MORE": "yes"}}
    made = await answer(client, 201, "POST", "/v2/sandboxes", json=body)
    path = f"/api/sessions/{made['sandboxID']}"
    session = await plane.ok("GET", path)
    assert session["permission_level"] == "high"
    line = (
        "cat made/said made/main made/sub/x many/one many/two renamed; "
        "stat -c ' %a' many/one; echo $GREETING $MORE; curl -s http://127.0.0.1:8123/ | grep said"
    )
    ran = await plane.ok("POST", f"{path}/exec", {"shell": line})
    assert ran["stdout"].startswith("hello\ncodex123 640\nhello yes\n")
    assert 'href="said"' in ran["stdout"]
    await answer(client, 204, "DELETE", f"/sandboxes/{made['sandboxID']}")
    await answer(client, 204, "DELETE", "/templates/web")
    assert (await plane.ok("GET", "/api/snapshots"))["items"] == []
    await answer(client, 404, "POST", "/v2/sandboxes", json=body)


# A package whose set-up makes a user; the second one needs the first.
PACKAGE = """
set -e
mkdir -p tree/DEBIAN tree/usr/bin
printf 'Package: NAME\nVersion: 1\nArchitecture: all\nMaintainer: n <n@example.com>\nNEEDS' \
    > tree/DEBIAN/control
printf 'Description: a program and a user of its own\n' >> tree/DEBIAN/control
printf '#!/bin/sh\nset -e\nadduser --system --no-create-home NAME\n' > tree/DEBIAN/postinst
printf '#!/bin/sh\necho NAME is installed\n' > tree/usr/bin/NAME
chmod 755 tree/DEBIAN/postinst tree/usr/bin/NAME
dpkg-deb --build tree NAME.deb
apt-get install -y ./NAME.deb
rm -r tree NAME.deb
"""


def package(name: str, needs: str = "") -> str:
    return PACKAGE.replace("NAME", name).replace("NEEDS", f"Depends: {needs}\n" if needs else "")


async def test_what_is_installed_is_kept(plane: Server, client: aiohttp.ClientSession) -> None:
    """At a level whose commands are root and may write over the image; also what comes later."""
    steps = [step("RUN", package("one")), step("RUN", "echo x > /opt/x; echo y > y")]
    found = await built(client, "installed", {}, fromTemplate=LEVEL, steps=steps)
    assert found["status"] == "ready", found
    steps = [step("RUN", package("two", "one"))]
    found = await built(client, "more", {}, fromTemplate="installed", steps=steps)
    assert found["status"] == "ready", found
    await answer(client, 204, "DELETE", "/templates/installed")
    made = await answer(client, 201, "POST", "/v2/sandboxes", json={"templateID": "more"})
    path = f"/api/sessions/{made['sandboxID']}"
    session = await plane.ok("GET", path)
    assert session["permission_level"] == LEVEL
    line = "one; two; id -un two; cat /opt/x y; dpkg -s two | grep Status"
    ran = await plane.ok("POST", f"{path}/exec", {"shell": line})
    assert ran["stdout"] == (
        "one is installed\ntwo is installed\ntwo\nx\ny\nStatus: install ok installed\n"
    )
    (fork,) = await answer(client, 201, "POST", f"/sandboxes/{made['sandboxID']}/fork", json={})
    forked = fork["sandbox"]["sandboxID"]
    ran = await plane.ok("POST", f"/api/sessions/{forked}/exec", {"shell": "one; two"})
    assert ran["stdout"] == "one is installed\ntwo is installed\n"
    for sandbox in (made["sandboxID"], forked):
        await answer(client, 204, "DELETE", f"/sandboxes/{sandbox}")
    await answer(client, 204, "DELETE", "/templates/more")


async def test_a_newer_build_takes_its_tag_and_begins_with_the_older_one(
    plane: Server, client: aiohttp.ClientSession
) -> None:
    steps = [step("ENV", "A", "1"), step("RUN", "echo $A > first")]
    await built(client, "base-of", {}, fromTemplate="high", steps=steps)
    steps = [step("RUN", "echo $A >> first")]
    found = await built(client, "base-of", {}, fromTemplate="base-of", steps=steps)
    assert found["status"] == "ready", found
    tags = await answer(client, 200, "GET", "/templates/base-of/tags")
    assert [(each["tag"], each["buildID"]) for each in tags] == [("default", found["buildID"])]
    assert len((await plane.ok("GET", "/api/snapshots"))["items"]) == 1
    made = await answer(client, 201, "POST", "/v2/sandboxes", json={"templateID": "base-of"})
    read = await plane.ok("POST", f"/api/sessions/{made['sandboxID']}/exec", {"shell": "cat first"})
    assert read["stdout"] == "1\n1\n"
    await answer(client, 204, "DELETE", f"/sandboxes/{made['sandboxID']}")
    await answer(client, 204, "DELETE", "/templates/base-of")


async def test_what_was_built_alike_is_taken_over(
    plane: Server, client: aiohttp.ClientSession
) -> None:
    """A step whose result differs each time tells whether it was carried out again."""
    first = step("RUN", "cat /proc/sys/kernel/random/uuid > first")
    copied = step("COPY", "a", "a", filesHash="aa")
    last = step("RUN", "cat /proc/sys/kernel/random/uuid > last")
    steps, files = [first, copied, last], {"aa": packed(a=b"1")}

    async def results(name: str, *wanted: dict[str, Any], **more: Any) -> list[str]:
        with_files = files if any(each["type"] == "COPY" for each in wanted) else {}
        body: dict[str, Any] = {"fromTemplate": "high", "steps": list(wanted), **more}
        found = await built(client, name, with_files, **body)
        assert found["status"] == "ready", found
        told = [each["message"] for each in found["logEntries"]]
        cached = next((each for each in told if each.startswith("CACHED")), "")
        made = await answer(client, 201, "POST", "/v2/sandboxes", json={"templateID": name})
        path = f"/api/sessions/{made['sandboxID']}/exec"
        line = "cat first a last 2>/dev/null | tr '\\n' ' '"
        ran = await plane.ok("POST", path, {"shell": line})
        await answer(client, 204, "DELETE", f"/sandboxes/{made['sandboxID']}")
        return [*str(ran["stdout"]).split(), cached.partition(":")[0]]

    one, rest, done = await results("kept:v1", *steps)
    assert (rest[0], done) == ("1", "")
    assert await results("kept:v2", *steps) == [one, rest, "CACHED steps 1 to 3"]
    # A longer one begins with it, and another template of the key as well.
    more = step("RUN", "true")
    assert await results("more", *steps, more) == [one, rest, "CACHED steps 1 to 3"]
    forced = await results("more", first, copied, {**last, "force": True})
    assert (forced[0] == one, forced[1] == rest) == (False, False)  # no build has ended at `a`
    assert (await results("more", *steps, force=True))[0] not in (one, forced[0])
    changed = await results("more", step("RUN", first["args"][0], "root"), copied, last)
    assert (changed[0] == one, changed[2]) == (False, "")
    # What was started may have written something: it serves the same build only.
    serving = await results("serving", first, startCmd="sleep 100")
    assert await results("serving", first, startCmd="sleep 100") == [
        serving[0],
        "CACHED steps 1 to 1",
    ]
    assert (await results("more", first))[0] != serving[0]
    for name in ("kept", "more", "serving"):
        await answer(client, 204, "DELETE", f"/templates/{name}")
    assert (await plane.ok("GET", "/api/snapshots"))["items"] == []


async def test_a_build_whose_beginning_is_gone_does_all_of_it(
    plane: Server, client: aiohttp.ClientSession
) -> None:
    steps = [step("RUN", "touch a")]
    await built(client, "gone", {}, fromTemplate="high", steps=steps)
    (kept,) = (plane.state_dir / "snapshots").iterdir()
    kept.unlink()
    found = await built(client, "gone", {}, fromTemplate="high", steps=steps)
    assert found["status"] == "ready", found
    assert not any(each["message"].startswith("CACHED") for each in found["logEntries"])
    await answer(client, 204, "DELETE", "/templates/gone")
    assert (await plane.ok("GET", "/api/snapshots"))["items"] == []


async def test_a_build_that_fails_leaves_nothing(
    plane: Server, client: aiohttp.ClientSession
) -> None:
    for steps, number, said in (
        ([step("RUN", "true"), step("RUN", "echo seen; exit 3")], "2", "exit code 3: seen"),
        ([step("COPY", "a", "b", filesHash="aa")], "1", "entry 'a' is a FIFO"),
        ([step("RUN", "touch /etc/x")], "1", "touch: cannot touch '/etc/x'"),
    ):
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            fifo = tarfile.TarInfo("a")
            fifo.type = tarfile.FIFOTYPE
            tar.addfile(fifo)
        files = {"aa": archive.getvalue()}
        found = await built(client, "bad", files, fromTemplate="high", steps=steps)
        assert found["status"] == "error"
        assert found["reason"]["step"] == number, found
        assert said in found["reason"]["message"], found
        assert await answer(client, 200, "GET", "/v2/sandboxes") == []
        sessions = await plane.ok("GET", "/api/sessions?status=active")
        assert (sessions["items"], (await plane.ok("GET", "/api/snapshots"))["items"]) == ([], [])
