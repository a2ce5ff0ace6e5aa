"""The console's pages of one session, with a real browser and real sandboxes."""

import json
import re
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import FilePayload, Locator, expect

from orchestrator.control_plane import ControlPlane
from tests.support.accessibility import violations
from tests.support.box import TESTER, Box
from tests.support.console_page import HOSTILE, PATIENCE_MS, Console

# A GIF of one pixel, and an image that is a program.
PIXEL = bytes.fromhex("47494638396101000100800000000000ffffff2c00000000010001000002024401003b")
SVG = b'<svg xmlns="http://www.w3.org/2000/svg" onload="document.title=1"></svg>'
# What would load a picture, run a script or call home, if a page took it for markup.
PLANTED = (
    "<img src=//planted.test/x onerror=window.planted=1><script>window.planted=1</script>"
    "<a href=javascript:window.planted=1>\u202e\"'{{constructor}}"
)
# A title, a link that is none, and a text for the clipboard, for a terminal that obeys.
TITLES = (
    b"\x1b]0;planted\x07\x1b]2;planted\x07\x1b]52;c;cGxhbnRlZA==\x07"
    b"\x1b]8;;javascript:window.planted=1\x07linked\x1b]8;;\x07\x1b[22;0t\x1b[8;9;9t\n"
)
# The same without blanks, as an address may have it.
IMAGE = "<img/src=x/onerror=window.planted=1>"
# More than any page has of links, buttons and fields.
MOST_STOPS = 400
# Notes that the focus was on no element when a key was pressed.
TELL_WHEN_LEFT = """() => {
  window.left = false;
  addEventListener("keydown", () => { window.left ||= document.activeElement === document.body; });
}"""
# Drops a file on what the selector finds.
DROP = """(element) => {
  const files = new DataTransfer();
  files.items.add(new File(["dropped"], "drop.txt"));
  element.dispatchEvent(new DragEvent("drop", {dataTransfer: files, bubbles: true}));
}"""

# Writes are proposals.
POLICY: dict[str, Any] = {
    "extends": "SAFE_EDIT",
    "allowed_operations": ["world.read", "world.write", "world.run", "subeval"],
    "denied_operations": [],
    "world_rules": {"write_patterns": ["**/*"], "proposal_mode": True},
    "execution_rules": {"allow_shell_commands": True},
}
# The page is as a session's handle has it.
AS_A_HANDLE = """(session) => sessionStorage.setItem("paddock.credential",
  JSON.stringify({...JSON.parse(sessionStorage.getItem("paddock.credential")), session}))"""

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def staging(control_plane: ControlPlane) -> Box:
    return await Box.create(control_plane, "low", policy=POLICY)


async def test_the_record_is_filtered_and_shown_from_any_time_on(
    console: Console, box: Box
) -> None:
    page = console.page
    await console.go(f"sessions/{box.session.id}/activity")
    events = page.locator("li.event")
    await expect(events.filter(has_text="session.create")).to_be_visible(timeout=PATIENCE_MS)
    await page.get_by_role("button", name="1 refused").click()
    await expect(events).to_have_count(1)
    await expect(events).to_contain_text("command-allowlist")
    await page.get_by_label("Decision").select_option("")
    await page.get_by_label("Jump to a time").fill("2020-01-01T00:00:00")
    await page.get_by_role("button", name="Go", exact=True).click()
    await console.shows("A part of the record: events 1 to")
    await page.get_by_role("button", name="Back to now").click()
    # The end of a command says which one ended.
    ended = events.filter(has_text="command.exit")
    await expect(ended).to_contain_text("echo", timeout=PATIENCE_MS)
    # An event has an address: it is shown unfolded.
    await console.go(f"sessions/{box.session.id}/activity?seq=1")
    await expect(page.locator("#event")).to_contain_text("Asked for", timeout=PATIENCE_MS)


async def test_files_go_in_and_out(console: Console, box: Box) -> None:
    page, dialog = console.page, console.page.get_by_role("dialog")
    await box.write("sub/app.py", b"def main():\n    return 1\n", parents=True)
    await box.write("pixel.gif", PIXEL)
    await box.write("active.svg", SVG)
    await console.go(f"sessions/{box.session.id}/files?path=sub%2Fapp.py")
    await expect(page.locator(".code-keyword").first).to_have_text("def", timeout=PATIENCE_MS)
    assert await violations(page) == []
    given = FilePayload(name="up.bin", mimeType="application/octet-stream", buffer=b"\x00\xffdata")
    await page.get_by_label("Upload").set_input_files(given)
    # It goes where the chosen file is.
    await page.get_by_role("button", name="up.bin").click(timeout=PATIENCE_MS)
    await console.shows("00 ff 64 61 74 61")
    async with page.expect_download() as waiting:
        await page.get_by_role("button", name="Download").click()
    assert (await (await waiting.value).path()).read_bytes() == b"\x00\xffdata"
    # By keyboard: up to the file before, and into it.
    await page.get_by_role("button", name="up.bin").press("ArrowUp")
    await page.keyboard.press("Enter")
    await console.shows("return 1")
    await page.get_by_role("button", name="pixel.gif").click()
    picture = page.get_by_role("img", name="pixel.gif")
    await expect(picture).to_have_js_property("naturalWidth", 1, timeout=PATIENCE_MS)
    await page.get_by_role("button", name="active.svg").click()
    await console.shows("onload=")
    await expect(page.get_by_role("img")).to_have_count(0)
    await page.get_by_role("button", name="New folder").click()
    await dialog.get_by_label("Path").fill("made/")
    await page.keyboard.press("Enter")
    made = page.get_by_role("button", name="made")
    await made.wait_for()
    await made.evaluate(DROP)
    await made.click()
    await page.get_by_role("button", name="drop.txt").click(timeout=PATIENCE_MS)
    await console.shows("dropped")
    await page.get_by_role("button", name="Rename").click()
    await dialog.get_by_label("New path").fill("made/renamed.txt")
    await page.keyboard.press("Enter")
    await page.get_by_role("button", name="renamed.txt").click(timeout=PATIENCE_MS)
    await page.get_by_role("button", name="Delete").click()
    await dialog.get_by_role("button", name="Delete").click()
    await expect(page.get_by_role("button", name="renamed.txt")).to_have_count(
        0, timeout=PATIENCE_MS
    )
    assert [path for path in await box.paths() if path.startswith("made")] == ["made"]


async def test_files_that_a_command_changes_are_shown_as_they_are(
    console: Console, control_plane: ControlPlane
) -> None:
    page = console.page
    box = await Box.create(control_plane, "medium")
    await box.write("watched/first.txt", b"before", parents=True)
    await box.write("longer.txt", b"what a command has copied")
    await console.go(f"sessions/{box.session.id}/files?path=watched%2Ffirst.txt")
    await console.shows("before")
    await expect(page.get_by_text("follows changes")).to_be_visible(timeout=PATIENCE_MS)
    # The chosen file, a new one beside it, and one that goes.
    await box.run(argv=["cp", "longer.txt", "watched/first.txt"])
    await console.shows("what a command has copied")
    await box.run(argv=["touch", "watched/second.txt"])
    second = page.get_by_role("button", name="second.txt")
    await expect(second).to_be_visible(timeout=PATIENCE_MS)
    await box.run(argv=["rm", "watched/second.txt"])
    await expect(second).to_have_count(0, timeout=PATIENCE_MS)
    # What is open goes with its directory.
    console.expected += ("404",)
    await box.run(argv=["rm", "-r", "watched"])
    await expect(page.get_by_role("button", name="watched")).to_have_count(0, timeout=PATIENCE_MS)
    await expect(page.get_by_role("alert")).to_have_count(0)


async def test_a_command_is_followed_and_signalled(console: Console, box: Box) -> None:
    page = console.page
    await box.write("log", b"first\n")
    await box.start(argv=["tail", "-f", "log"], background=True)
    await console.go(f"sessions/{box.session.id}/processes")
    # Its guard is a child of the agent, and it is the guard's.
    process = page.get_by_role("row").filter(has_text="tail -f log").locator(".branch")
    await expect(process).to_have_class(re.compile("depth-2"), timeout=PATIENCE_MS)
    command = page.get_by_role("listitem").filter(has_text="tail -f log")
    await command.get_by_role("button", name="tail -f log").press("Enter")
    output = command.get_by_label("output")
    await expect(output).to_have_text("first\n", timeout=PATIENCE_MS)
    await box.write("log", f"then {HOSTILE}\n".encode(), mode="append")
    await expect(output).to_contain_text("onerror=document.title=1>U+202Etxt", timeout=PATIENCE_MS)
    assert await violations(page) == []
    await command.get_by_label("Signal").select_option("INT")
    await command.get_by_role("button", name="Send").click()
    await expect(command).to_contain_text("signal SIGINT", timeout=PATIENCE_MS)
    await expect(command).to_contain_text("the end of the output", timeout=PATIENCE_MS)
    await expect(process).to_have_count(0, timeout=PATIENCE_MS)


async def test_a_denied_request_becomes_a_rule_and_a_port_is_opened(
    console: Console, box: Box
) -> None:
    page = console.page
    await box.run(argv=["curl", "-s", f"http://denied.test/{IMAGE}"])
    await console.go(f"sessions/{box.session.id}/level")
    denied = page.get_by_role("region", name="denied requests").get_by_role("row")
    await expect(denied.filter(has_text=IMAGE)).to_be_visible(timeout=PATIENCE_MS)
    assert await page.evaluate("window.planted") is None
    await (
        denied.filter(has_text="denied.test")
        .get_by_role("button", name="Allow")
        .click(timeout=PATIENCE_MS)
    )
    rules = page.get_by_role("region", name="rules")
    await expect(rules).to_contain_text("an admin's addition", timeout=PATIENCE_MS)
    assert "denied.test" in str(box.session.own_rules)
    await rules.get_by_role("button", name="Remove").click()
    await console.shows("every request is denied")
    assert "denied.test" not in str(box.session.own_rules)
    await page.get_by_label("Port", exact=True).fill("8000")
    await page.get_by_role("button", name="Open", exact=True).click()
    ports = page.get_by_role("region", name="ports")
    await expect(ports).to_contain_text("8000", timeout=PATIENCE_MS)
    await ports.get_by_role("button", name="Close").click()
    await console.shows("No port is open")


async def test_what_is_planted_in_any_field_does_nothing(
    console: Console, control_plane: ControlPlane
) -> None:
    page = console.page
    requests, dialogs = [], []
    page.on("request", lambda request: requests.append(request.url))
    page.on("dialog", lambda dialog: dialogs.append(dialog.message))
    box = await Box.create(
        control_plane,
        "high",
        labels={"team": PLANTED},
        role=PLANTED,
        work_id=PLANTED,
        episode_id=PLANTED,
        policy_resolved_ref=PLANTED,
    )
    name = PLANTED.replace("/", "")
    await box.write(f"{name}.html", PLANTED.encode())
    await box.mkdir(name)
    await box.run(argv=["ln", "-s", PLANTED, "link"])
    await box.run(argv=["cat", PLANTED], cwd=name)
    await box.write("print.py", f"import time\nprint('''{PLANTED}''', flush=True)\n".encode())
    await box.write("print.py", b"time.sleep(1000)\n", mode="append")
    await box.start(argv=["python3", "print.py", PLANTED], background=True)
    session = f"sessions/{box.session.id}"
    for place in ("activity", "processes", "terminals", "shell", "files", "level", "raw"):
        await console.go(f"{session}/{place}")
        await expect(page.get_by_role("link", name=place.title(), exact=False).first).to_be_visible(
            timeout=PATIENCE_MS
        )
        await page.evaluate(
            "for (const each of document.querySelectorAll('details')) each.open = true"
        )
        if place == "processes":
            command = page.get_by_role("listitem").filter(has_text="print.py")
            await command.get_by_role("button", expanded=False).click(timeout=PATIENCE_MS)
            await expect(command.get_by_label("output")).to_contain_text(
                "planted", timeout=PATIENCE_MS
            )
        if place == "files":
            await page.get_by_role("button").filter(has_text="}}.html").click()
            await expect(page.locator(".source")).to_contain_text("onerror", timeout=PATIENCE_MS)
        await console.shows("onerror=")
        assert await page.locator("main img, main script, main iframe, main base").count() == 0
    assert await page.evaluate("window.planted") is None
    assert not [url for url in requests if "planted" in url.replace("%20", " ").partition("?")[0]]
    assert dialogs == []
    await box.close()


async def test_every_page_is_left_by_the_tab_key_and_fits_a_phone(
    console: Console, box: Box
) -> None:
    page = console.page
    # Other tests look at the other pages, with more on them.
    looked_at = ("Terminals", "Shell", "Named shells", "Level and policy")
    others = ("Code", "Processes", "Files", "Raw", "Activity")
    await console.go(f"sessions/{box.session.id}")
    tabs = page.get_by_role("navigation", name="Parts of the session")
    for name in ("Turns", *looked_at, *others):
        await tabs.get_by_role("link", name=name, exact=True).press("Enter", timeout=PATIENCE_MS)
        await expect(tabs.get_by_role("link", name=name, exact=True)).to_have_attribute(
            "aria-current", "page", timeout=PATIENCE_MS
        )
        await expect(page.locator("main").get_by_text("Loading")).to_have_count(
            0, timeout=PATIENCE_MS
        )
        await page.get_by_role("link", name="Paddock").focus()
        await page.evaluate(TELL_WHEN_LEFT)
        for _ in range(MOST_STOPS // 20):
            for _ in range(20):
                await page.keyboard.press("Tab")
            if await page.evaluate("window.left"):
                break
        else:
            raise AssertionError(f"the keyboard does not leave {name}")
        if name in looked_at:
            assert await violations(page) == [], name
        await page.set_viewport_size({"width": 360, "height": 740})
        assert await page.evaluate("document.documentElement.scrollWidth") == 360, name
        await page.set_viewport_size({"width": 1280, "height": 720})


async def test_a_shell_is_used_left_and_found_again(
    console: Console, control_plane: ControlPlane
) -> None:
    page = console.page
    box = await Box.create(control_plane, "high")
    await box.write("title", TITLES)
    await console.go(f"sessions/{box.session.id}/shell")
    await page.get_by_role("button", name="Open a shell").click(timeout=PATIENCE_MS)
    shell = page.locator(".xterm-rows")
    await expect(shell).to_contain_text("$", timeout=PATIENCE_MS)
    await page.keyboard.type("cat title; stty size | tr ' ' x; unset HISTFILE; touch made\n")
    await expect(shell).to_contain_text(re.compile(r"linked.*\d+x\d+"), timeout=PATIENCE_MS)
    wide = await columns(shell)
    assert await violations(page) == []
    assert await page.title() != "planted"
    assert await page.locator(".screen a").count() == 0
    await page.set_viewport_size({"width": 700, "height": 740})
    await page.keyboard.type("clear; stty size | tr ' ' x\n")
    await expect(shell).not_to_contain_text("linked", timeout=PATIENCE_MS)
    await expect(shell).to_contain_text(re.compile(r"\d+x\d+"), timeout=PATIENCE_MS)
    assert await columns(shell) < wide
    assert "made" in await box.paths()
    # The keyboard gets out of it, and the page finds it again.
    await page.keyboard.press("Control+F6")
    await expect(page.get_by_role("button", name="End", exact=True)).to_be_focused()
    await page.keyboard.press("Shift+Tab")
    await console.reload()
    await expect(shell).to_contain_text(re.compile(r"\d+x\d+"), timeout=PATIENCE_MS)
    await page.keyboard.type("echo $((40 + 2))\n")
    await expect(shell).to_contain_text("42", timeout=PATIENCE_MS)
    await page.get_by_role("button", name="Another shell").click()
    await expect(page.get_by_role("button", name="Shell 2")).to_be_visible(timeout=PATIENCE_MS)
    await page.get_by_role("button", name="Shell 1").click()
    await expect(shell).to_contain_text("42", timeout=PATIENCE_MS)
    # Others watch it, and see how it ends.
    await console.go(f"sessions/{box.session.id}/terminals")
    await page.get_by_role("button", name="Watch").last.click(timeout=PATIENCE_MS)
    await expect(shell).to_contain_text("42", timeout=PATIENCE_MS)
    await page.get_by_label("terminal", exact=True).first.click()
    await page.keyboard.type("never typed")
    await page.get_by_role("button", name="End").last.click()
    await page.get_by_role("dialog").get_by_role("button", name="End").click()
    await expect(page.get_by_label("live terminal")).to_contain_text(
        "exit 129", timeout=PATIENCE_MS
    )
    assert "never typed" not in await shell.inner_text()
    await page.get_by_role("button", name="Replay").click(timeout=PATIENCE_MS)
    await page.get_by_label("Speed").select_option("16")
    await expect(page.get_by_role("button", name="Play", exact=True)).to_be_visible(
        timeout=PATIENCE_MS
    )
    await expect(shell).to_contain_text("42")
    await page.get_by_role("slider", name="Time").fill("0")
    await expect(shell).not_to_contain_text("42")
    await box.close()


async def test_a_named_shell_keeps_its_state_and_is_interrupted(
    console: Console, control_plane: ControlPlane
) -> None:
    page = console.page
    box = await Box.create(control_plane, "high")
    await console.go(f"sessions/{box.session.id}/shells")
    await page.get_by_role("button", name="Create").click(timeout=PATIENCE_MS)
    typed = page.get_by_label("Command", exact=True)
    told = page.get_by_role("log").get_by_role("region")
    for text in (
        "mkdir src; cd src; export COLOUR=green",
        "for each in $COLOUR; do pwd; done; false",
    ):
        await typed.fill(text, timeout=PATIENCE_MS)
        await typed.press("Enter")
        await expect(told.last).to_contain_text(re.compile(r"exit \d"), timeout=PATIENCE_MS)
    await expect(told.last).to_contain_text("exit 1")
    await expect(told.last.get_by_label("output of command 2")).to_have_text("/workspace/src\n")
    await typed.fill("echo begun; touch begun; sleep 1000")
    await typed.press("Enter")
    await expect(page.get_by_text("a command runs")).to_be_visible(timeout=PATIENCE_MS)
    await until_there(box, "src/begun")
    await page.get_by_role("button", name="Interrupt", exact=True).last.click()
    await expect(told.last).to_contain_text("exit 130", timeout=PATIENCE_MS)
    await expect(told.last).to_contain_text("begun")
    await box.close()


async def until_there(box: Box, path: str) -> None:
    """Waits until a command has made the file."""
    await box.run(argv=["bash", "-c", f"until [ -e {path} ]; do sleep 0.1; done"])


async def columns(shell: Locator) -> int:
    """The width that `stty size | tr ' ' x` has printed last."""
    return int(re.findall(r"\d+x(\d+)", await shell.inner_text())[-1])


async def test_turns_are_run_followed_and_interrupted(console: Console, staging: Box) -> None:
    page = console.page
    await console.go(f"sessions/{staging.session.id}/turns")
    await console.shows("No turn has been run yet")
    program, turns = page.get_by_label("Program", exact=True), page.locator(".turns > .event")
    path, text = (lisp(each) for each in (f"{PLANTED.replace('/', '')}.md", PLANTED))
    await program.fill(
        f"(begin (world.write {path} {text}) (display {text}) (subeval '(world.read {path})))"
    )
    await page.get_by_role("button", name="Run").click()
    await expect(turns).to_contain_text("proposed", timeout=PATIENCE_MS)
    operations = page.get_by_role("list", name="operations").locator(".event")
    nested = page.get_by_role("list", name="nested program").locator(".event")
    await expect(nested).to_contain_text("world.read")
    await expect(operations.first).to_contain_text("onerror=", timeout=PATIENCE_MS)
    await expect(operations).to_have_count(3)
    await expect(page.get_by_role("region", name="value")).to_contain_text("U+202E")
    await expect(page.get_by_role("region", name="printed")).to_contain_text("onerror=")
    await operations.first.locator("summary").click()
    await expect(operations.first).to_contain_text("sha256")
    assert await violations(page) == []
    await program.fill('(world.read ".env")')
    await page.get_by_role("button", name="Run").click()
    await expect(turns.first).to_contain_text("policy-violation", timeout=PATIENCE_MS)
    await expect(turns.first.get_by_role("list", name="operations")).to_contain_text("policy-read")
    # What a turn does is shown while it runs.
    await program.fill('(begin (world.write "log" "") (world.run "tail -f log"))')
    await page.get_by_role("button", name="Run").click()
    await expect(turns.first).to_contain_text("world.run", timeout=PATIENCE_MS)
    await expect(turns.first).to_contain_text("running")
    await page.get_by_role("button", name="Interrupt the turn").click()
    await expect(turns.first).to_contain_text("interrupted", timeout=PATIENCE_MS)
    await expect(turns).to_have_count(3)
    assert await page.locator("main img, main script").count() == 0
    assert await page.evaluate("window.planted") is None


def lisp(text: str) -> str:
    """The text as a program has it."""
    return json.dumps(text, ensure_ascii=False)


async def test_proposals_are_reviewed_committed_and_rolled_back(
    console: Console, staging: Box, control_plane: ControlPlane
) -> None:
    page, dialog = console.page, console.page.get_by_role("dialog")
    console.expected += ("409 (Conflict)",)
    name = PLANTED.replace("/", "")
    async with control_plane.sessions.suspensions.using(TESTER, staging.session):
        await staging.write("app.py", b"one\ntwo\nthree\n")
        await staging.write(name, PLANTED.encode())
        await staging.write("bytes.bin", b"\x00\x01")
        await staging.run(argv=["touch", f"refused\n{name}"])
    await console.go(f"sessions/{staging.session.id}/proposals")
    changes = page.get_by_role("list", name="changes").locator(".change")
    planted = changes.filter(has=page.get_by_role("checkbox", name=f"choose {name}", exact=True))
    await expect(planted.locator("ins")).to_contain_text("onerror=", timeout=PATIENCE_MS)
    await expect(planted.locator("ins")).to_contain_text("U+202E")
    await expect(changes.filter(has_text="bytes.bin")).to_contain_text("Binary content of 2 B")
    refused = page.get_by_role("list", name="refused changes")
    await expect(refused).to_contain_text("onerror=")
    assert await violations(page) == []
    await page.set_viewport_size({"width": 360, "height": 740})
    assert await page.evaluate("document.documentElement.scrollWidth") == 360
    await page.set_viewport_size({"width": 1280, "height": 720})
    app = changes.filter(has_text="app.py")
    await commit(console, app)
    await console.shows("Committed: 1 written, 0 deleted.")
    assert (staging.workspace / "app.py").read_bytes() == b"one\ntwo\nthree\n"
    assert not (staging.workspace / "bytes.bin").exists()
    async with control_plane.sessions.suspensions.using(TESTER, staging.session):
        await staging.write("app.py", b"one\n2\nthree\n")
    await expect(page.get_by_text("there may be more by now")).to_be_visible(timeout=PATIENCE_MS)
    await page.get_by_role("button", name="Refresh").click()
    changed = app.get_by_role("row").filter(has_text="two")
    await expect(changed.get_by_role("cell")).to_have_text(
        ["2", "two", "2", "2"], timeout=PATIENCE_MS
    )
    # Both sides are below each other where there is little room.
    old, new = changed.locator("del"), changed.locator("ins")
    assert await below(old) == await below(new)
    await page.set_viewport_size({"width": 690, "height": 740})
    assert await below(old) < await below(new)
    await page.set_viewport_size({"width": 1280, "height": 720})
    (staging.workspace / "app.py").write_bytes(b"by others\n")
    await commit(console, app)
    conflicts = page.get_by_role("list", name="conflicts")
    await expect(conflicts).to_contain_text("app.py", timeout=PATIENCE_MS)
    await expect(conflicts).to_contain_text("the workspace has changed")
    await expect(app).to_contain_text("the workspace has changed here", timeout=PATIENCE_MS)
    assert (staging.workspace / "app.py").read_bytes() == b"by others\n"
    # Only a key commits.
    await page.evaluate(AS_A_HANDLE, staging.session.id)
    await console.reload()
    await console.shows("only a key may commit")
    await expect(page.get_by_role("button", name="Commit")).to_have_count(0)
    await expect(page.get_by_role("checkbox")).to_have_count(0)
    await page.get_by_role("button", name="Roll back").click()
    await dialog.get_by_role("button", name="Roll back").click()
    await console.shows("Nothing is staged.")
    assert [path.name for path in staging.workspace.iterdir()] == ["app.py"]
    assert await page.locator("main img, main script").count() == 0
    assert await page.evaluate("window.planted") is None


async def commit(console: Console, change: Locator) -> None:
    """Commits that change only."""
    await change.get_by_role("checkbox").check()
    await console.page.get_by_role("button", name="Commit the chosen 1").click()
    await console.page.get_by_role("dialog").get_by_role("button", name="Commit").click()


async def below(shown: Locator) -> float:
    """Its distance from the top of the page."""
    box = await shown.bounding_box()
    assert box is not None
    return box["y"]


async def test_a_level_without_a_shell_says_why(console: Console, box: Box) -> None:
    await console.go(f"sessions/{box.session.id}/shell")
    await console.shows("The level medium has no shell")
    await console.shows("allowed are, by bare name")
    await console.page.get_by_role("link", name="Raise the level").press("Enter")
    await expect(console.page.get_by_role("radio", name="medium")).to_be_checked(
        timeout=PATIENCE_MS
    )
