"""A session's runs in the console, with a scripted model and a control plane without containers."""

import json
import re
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import pytest_asyncio
from aiohttp import ClientSession
from playwright.async_api import Browser, Locator, Page, Route, expect

from orchestrator.rules.access.key_bounds import KeyBounds
from orchestrator.rules.access.keys import Principal, Role
from orchestrator.settings.operator_models import OperatorModel
from orchestrator.state.requests import ExecRequest
from orchestrator.state.session import Session
from orchestrator.work.approvals.approvals import Line
from tests.support.accessibility import violations
from tests.support.box import TESTER
from tests.support.console_page import HOSTILE, PATIENCE_MS, Console, opened
from tests.support.fake_agent import Play
from tests.support.models import Answer, ModelServer, calling, chunk, event, model_server
from tests.support.served_plane import KEY, ServedPlane, served_plane
from tests.support.until import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

EDIT: dict[str, Any] = {
    "allowed_operations": ["llm.complete", "world.read", "world.write", "world.exec"],
    "denied_operations": [],
    "world_rules": {"write_patterns": ["src/**/*"], "read_only": False},
    "llm_rules": {"allow_complete": True, "max_tokens_per_call": 100},
    "execution_rules": {"allow_shell_commands": True, "allow_network_calls": True},
}
LS = ("exec", {"argv": ["ls", "-l"]})
HOLD = ("exec", {"argv": ["tail", "-f", "log"]})
# More than the page has of links, buttons and fields.
MOST_STOPS = 100
# Notes that the focus was on no element when a key was pressed.
TELL_WHEN_LEFT = """() => {
  window.left = false;
  addEventListener("keydown", () => { window.left ||= document.activeElement === document.body; });
}"""
# What a page asks for when it hears of a session that another one has spawned.
NEW_CHILD = """async () => {
  const {Live} = await import("/console/live.js");
  const [live, asked, fetched] = [new Live(), [], globalThis.fetch];
  const listed = {items: [{id: "new", incarnation: 1, commands: []}], next: null};
  globalThis.fetch = async (path) => (asked.push(path), new Response(JSON.stringify(listed)));
  live.heard({session_id: "new", operation: "session.create", args: {parent: "root"}});
  await new Promise((known) => live.listeners.add(() => live.sessions.has("new") && known()));
  globalThis.fetch = fetched;
  return asked;
}"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served() -> AsyncIterator[ServedPlane]:
    async with served_plane() as served:
        served.agents.plays["ls"] = Play(stdout=b"README.md\n")
        served.agents.plays["tail"] = Play(holds=True)
        served.agents.files["README.md"] = b"hello\n"
        yield served


@pytest_asyncio.fixture(loop_scope="module")
async def model(served: ServedPlane) -> AsyncIterator[ModelServer]:
    """The models `small` and `large`, which are one."""
    async with model_server() as server:
        for name in ("small", "large"):
            found = OperatorModel.model_validate(server.setting(model=name))
            served.plane.models.configured[name] = found
        yield server
        served.plane.models.configured.clear()


@pytest_asyncio.fixture(loop_scope="module")
async def admin(browser: Browser, served: ServedPlane) -> AsyncIterator[Console]:
    async with opened(browser, served.address) as console:
        await console.sign_in(KEY)
        yield console


class Tab:
    """The page of a session's runs."""

    def __init__(self, console: Console, session: Session) -> None:
        self.console, self.page, self.session = console, console.page, session
        self.thread = self.page.get_by_role("log", name="runs")
        self.status = self.page.locator(".run-status")
        self.message = self.page.get_by_label("Message")
        self.level = self.page.get_by_label("Permission level")
        self.dialog = self.page.get_by_role("dialog")

    async def open(self) -> "Tab":
        await self.console.go(f"sessions/{self.session.id}/run")
        await expect(self.thread).to_be_visible(timeout=PATIENCE_MS)
        return self

    async def choose(self, level: str) -> None:
        """Chooses a level, and presses the button that changes to it."""
        await self.level.select_option(level)
        await self.button(f"Change to {level}").click()

    async def send(self, text: str) -> None:
        await self.message.fill(text)
        await self.message.press("Enter")

    def run(self, number: int) -> Locator:
        return self.thread.get_by_role("region", name=f"run {number}", exact=True)

    def calls(self) -> Locator:
        return self.thread.locator(".call")

    def button(self, name: str) -> Locator:
        return self.page.get_by_role("button", name=name, exact=True)

    async def says(self, text: str) -> None:
        await expect(self.status).to_contain_text(text, timeout=PATIENCE_MS)

    async def shows(self, text: str) -> None:
        await expect(self.thread).to_contain_text(text, timeout=PATIENCE_MS)


async def tab_of(console: Console, served: ServedPlane, **members: Any) -> Tab:
    session = await served.session(**{"policy": EDIT, **members})
    return await Tab(console, session).open()


async def end_command(served: ServedPlane) -> None:
    """Ends the command that holds a call."""
    agent = served.agents.latest
    command = next(iter(agent._running))
    agent.print(command, "stdout", b"followed\n")
    agent.end(command)


async def test_a_run_is_streamed_and_is_there_again_later(
    admin: Console, served: ServedPlane, model: ModelServer
) -> None:
    tab = await tab_of(admin, served)
    await tab.shows("Nothing has been said yet")
    begun = "The first sentence is complete. "
    model.answers = [Answer(body=[event(chunk(begun)), event(chunk("Then"))], hangs=True)]
    await tab.send("What is here?")
    # The text is there while the model goes on.
    await expect(tab.run(1)).to_contain_text(begun.strip(), timeout=PATIENCE_MS)
    await expect(tab.run(1)).to_contain_text("What is here?")
    await tab.says("Run 1 goes on, tick 1")
    await tab.button("Interrupt the run").click()
    await tab.says("Run 1 has ended: error, interrupted")
    model.answers = [calling(LS, text="I look."), Answer("A README.", usage=(20, 4))]
    await tab.send("Go on.")
    await tab.says("Run 2 has ended: ok")
    for _ in range(2):
        run = tab.run(2)
        await expect(run).to_contain_text("I look.", timeout=PATIENCE_MS)
        heads = [
            re.compile(head) for head in ("user", r"tick 1 15 tokens · \d", "tick 2 24 tokens")
        ]
        await expect(run.locator(".said > h3")).to_have_text(heads, timeout=PATIENCE_MS)
        await expect(run.locator(".run-end")).to_contain_text("ok 39 tokens")
        await expect(tab.run(1)).to_contain_text("What is here?")
        await expect(tab.run(1).locator(".run-end")).to_contain_text("interrupted")
        await tab.console.reload()
        await tab.says("Run 2 has ended: ok")


async def test_messages_are_queued_while_a_run_goes_on_and_start_the_next_one(
    admin: Console, served: ServedPlane, model: ModelServer
) -> None:
    tab = await tab_of(admin, served)
    model.answers = [
        calling(HOLD),
        Answer("The log is followed."),
        Answer("And that is done, too."),
    ]
    await tab.send("Follow the log.")
    await tab.says("Run 1 goes on, tick 1, exec")
    await tab.send("Then do that.")
    queued = tab.run(1).locator(".said.user").filter(has_text="Then do that.")
    await expect(queued).to_contain_text("queued", timeout=PATIENCE_MS)
    await end_command(served)
    await tab.says("Run 1 has ended: ok")
    # It is where the run has taken it in.
    said = tab.run(1).locator(".said .text")
    order = ["Follow the log.", "The log is followed.", "Then do that.", "And that is done, too."]
    await expect(said).to_have_text(order, timeout=PATIENCE_MS)
    await expect(queued).not_to_contain_text("queued")
    model.answers = [calling(HOLD), Answer("Stopped."), Answer("Never said.")]
    await tab.send("Follow it again.")
    await tab.says("Run 2 goes on, tick 1, exec")
    await tab.message.fill("Stop, and say so.")
    await tab.button("Interrupt with this message").click()
    await tab.says("Run 2 has ended: error, interrupted")
    await tab.shows("waits for the next run")
    await expect(tab.message).to_have_value("")
    await tab.button("Continue").click()
    await tab.says("Run 3 has ended: ok")
    await expect(tab.run(3).locator(".said .text")).to_have_text(["Stop, and say so.", "Stopped."])
    await expect(tab.thread).not_to_contain_text("waits for the next run")


async def test_a_run_of_somebody_else_is_followed_and_joined(
    admin: Console, served: ServedPlane, model: ModelServer
) -> None:
    tab = await tab_of(admin, served)
    model.answers = [calling(HOLD), Answer("Done."), Answer("Joined.")]
    async with ClientSession(headers={"Authorization": f"Bearer {KEY}"}) as client:
        url = f"{served.address}api/sessions/{tab.session.id}/send"
        body = {"messages": [{"content": "Begun elsewhere."}]}
        headers = {"Accept": "text/event-stream"}
        async with client.post(url, json=body, headers=headers) as elsewhere:
            await tab.says("Run 1 goes on, tick 1, exec")
            await expect(tab.run(1)).to_contain_text("Begun elsewhere.")
            await tab.send("Joined from here.")
            await tab.shows("queued")
            await end_command(served)
            await elsewhere.read()
    await tab.says("Run 1 has ended: ok")
    said = tab.run(1).locator(".said .text")
    order = ["Begun elsewhere.", "Done.", "Joined from here.", "Joined."]
    await expect(said).to_have_text(order, timeout=PATIENCE_MS)


async def test_a_run_has_the_chosen_model_and_number_of_ticks(
    admin: Console, served: ServedPlane, model: ModelServer
) -> None:
    tab = await tab_of(admin, served)
    model.answers = [calling(LS)]
    await tab.page.get_by_label("Model").select_option("large")
    await tab.page.get_by_label("Most ticks").fill("101")
    await tab.message.fill("List.")
    await expect(tab.button("Send")).to_be_disabled()
    await tab.page.get_by_label("Most ticks").fill("2")
    await tab.button("Send").click()
    await tab.says("Run 1 has ended: nonconverged, max-iterations")
    assert [body["model"] for body in model.bodies] == ["large", "large"]
    await expect(tab.run(1).locator(".run-end")).to_contain_text("max iterations")


async def test_calls_show_arguments_decision_and_output(
    admin: Console, served: ServedPlane, model: ModelServer
) -> None:
    tab = await tab_of(admin, served)
    served.agents.files["long"] = b"".join(b"line %d\n" % n for n in range(3000))
    served.agents.files["wide"] = b"x" * 60_000
    served.agents.files["says"] = b"Refused by policy-read: the file says so"
    model.answers = [
        calling(LS, ("write_file", {"path": ".env", "text": "x"}), ("exec", {"argv": ["gcc"]})),
        calling(("read_file", {"path": "none"}), ("none", {}), ("read_file", "{")),
        calling(*(("read_file", {"path": path}) for path in ("long", "wide", "says"))),
        Answer("done"),
    ]
    await tab.send("Go.")
    await tab.says("Run 1 has ended: ok")
    calls = tab.calls()
    expected: tuple[tuple[str, ...], ...] = (
        ("ls -l", "allow", "exit 0", "README.md"),
        (".env", "deny", "policy-write", "Write not allowed: .env", "→ Name another path"),
        ("gcc", "deny", "command-allowlist"),
        ("none", "allow", "failed", "No such file"),
        ("none", "Refused: there is no tool none"),
        ("read_file", "Refused: the arguments are not JSON"),
        ("long", "allow", "a part of 3000 lines"),
        ("wide", "allow", "10848 characters are left out"),
        # A decision is what the record says.
        ("says", "allow", "the file says so"),
    )
    for _ in range(2):
        await expect(calls).to_have_count(len(expected), timeout=PATIENCE_MS)
        for at, texts in enumerate(expected):
            call = calls.nth(at)
            # Long ones are collapsed.
            if at in (6, 7):
                await expect(call).not_to_contain_text("output")
                await call.locator("summary").press("Enter")
            for text in texts:
                await expect(call).to_contain_text(text, timeout=PATIENCE_MS)
        await expect(calls.nth(4)).not_to_contain_text("allow")
        assert await calls.nth(1).get_by_label("arguments").inner_text() == (
            '{\n  "path": ".env",\n  "text": "x"\n}'
        )
        # The line has all that this one says.
        await expect(calls.nth(0).get_by_label("arguments")).to_have_count(0)
        await tab.console.reload()
    await calls.nth(0).locator("summary").press("Enter", timeout=PATIENCE_MS)
    await expect(calls.nth(0)).not_to_contain_text("README.md")


async def test_an_approval_is_decided_where_the_call_waits(
    admin: Console, served: ServedPlane, model: ModelServer
) -> None:
    tab = await tab_of(admin, served)
    model.answers = [calling(HOLD), Answer("done")]
    await tab.send("Follow the log.")
    await tab.says("Run 1 goes on, tick 1, exec")
    for key, decision in (("a", "approved"), ("d", "denied")):
        line = Line("", "psql", f"DROP TABLE {HOSTILE} {key}", "high")
        asked = await served.plane.approvals.obtain(tab.session, line, "handle:x", 0)
        card = tab.calls().get_by_label("approval of psql", exact=True)
        await expect(card).to_contain_text("U+202E", timeout=PATIENCE_MS)
        await expect(tab.calls()).to_contain_text("waits for approval")
        await tab.says("exec, waits for approval")
        assert await violations(tab.page) == []
        await card.press(key)
        await expect(card).to_have_count(0, timeout=PATIENCE_MS)
        found = await served.plane.approvals.obtain(tab.session, line, "handle:x", 0)
        assert (found.id, found.status) == (asked.id, decision)
    # It is shown while nothing runs, too: a terminal may wait for it.
    await end_command(served)
    await tab.says("Run 1 has ended: ok")
    line = Line("", "psql", "SELECT 1", "high")
    await served.plane.approvals.obtain(tab.session, line, "handle:x", 0)
    await tab.thread.get_by_label("approval of psql").get_by_role("button", name="Approve").click()
    await expect(tab.thread.get_by_label("approval of psql")).to_have_count(0, timeout=PATIENCE_MS)


async def sent_level(tab: Tab) -> str | None:
    """The level that goes with what is sent now."""
    async with tab.page.expect_request("**/send") as waiting:
        await tab.send("Go.")
    sent: dict[str, Any] = (await waiting.value).post_data_json or {}
    await tab.says("has ended: ok")
    return sent.get("permission_level")


async def test_the_level_is_chosen_and_kept(
    admin: Console, served: ServedPlane, model: ModelServer
) -> None:
    tab = await tab_of(admin, served)
    dialog = tab.dialog
    assert await sent_level(tab) is None
    # A higher one is confirmed.
    await tab.choose("medium")
    await dialog.get_by_role("button", name="Cancel").click()
    await expect(tab.level).to_have_value("low")
    await tab.choose("medium")
    await dialog.get_by_role("button", name="Raise").click()
    await until(lambda: tab.session.level.name == "medium")
    await expect(tab.level).to_be_enabled(timeout=PATIENCE_MS)
    await expect(tab.level).to_have_value("medium")
    await expect(tab.button("Change to medium")).to_have_count(0)
    kept = "localStorage.getItem('paddock.levels')"
    chosen = f'[["{tab.session.id}","medium"]]'
    await tab.page.wait_for_function(f"{kept} === '{chosen}'")
    assert await sent_level(tab) is None
    # What was lowered elsewhere is not raised by what this browser has kept, unless it is asked to.
    await served.plane.sessions.changes.set_level(TESTER, tab.session, "low", {})
    await expect(tab.level).to_have_value("low", timeout=PATIENCE_MS)
    assert await sent_level(tab) is None
    await tab.console.reload()
    offer = tab.button("Change to medium")
    await expect(offer).to_be_visible(timeout=PATIENCE_MS)
    assert tab.session.level.name == "low"
    await offer.click()
    await dialog.get_by_role("button", name="Raise").click()
    await until(lambda: tab.session.level.name == "medium")
    await expect(offer).to_have_count(0, timeout=PATIENCE_MS)
    await expect(tab.level).to_be_enabled(timeout=PATIENCE_MS)


async def test_a_run_from_a_page_that_knows_an_older_level_ends_nothing(
    admin: Console, served: ServedPlane, model: ModelServer
) -> None:
    tab = await tab_of(admin, served, permission_level="medium")

    async def older(route: Route) -> None:
        response = await route.fetch()
        known = {**await response.json(), "permission_level": "medium"}
        await route.fulfill(response=response, json=known)

    await tab.page.route(f"**/api/sessions/{tab.session.id}", older)
    await served.plane.sessions.changes.set_level(TESTER, tab.session, "high", {})
    follow = ExecRequest(argv=["tail", "-f", "log"], background=True)
    command = await served.plane.executions.start(TESTER, tab.session, follow)
    assert await sent_level(tab) is None
    await expect(tab.level).to_have_value("medium")
    assert tab.session.level.name == "high"
    assert not command.ended


async def test_what_begins_while_a_person_is_asked_is_asked_about_again(
    admin: Console, served: ServedPlane, model: ModelServer
) -> None:
    tab = await tab_of(admin, served, permission_level="medium")
    await tab.choose("high")
    await expect(tab.dialog).to_contain_text("Nothing runs in it now", timeout=PATIENCE_MS)
    follow = ExecRequest(argv=["tail", "-f", "log"], background=True)
    await served.plane.executions.start(TESTER, tab.session, follow)
    raise_it = tab.dialog.get_by_role("button", name="Raise")
    await raise_it.click()
    await expect(tab.dialog.locator("li")).to_have_text(["command tail -f log"])
    await expect(tab.dialog.get_by_role("alert")).to_contain_text("More has begun")
    assert tab.session.level.name == "medium"
    await raise_it.click()
    await expect(tab.level).to_have_value("high", timeout=PATIENCE_MS)
    await until(lambda: tab.session.level.name == "high")


async def test_a_level_change_names_what_it_ends(
    admin: Console, served: ServedPlane, model: ModelServer
) -> None:
    tab = await tab_of(admin, served, permission_level="medium")
    # An arrow key chooses, and changes nothing.
    await tab.level.focus()
    await tab.page.keyboard.press("ArrowUp")
    await expect(tab.button("Change to low")).to_be_visible(timeout=PATIENCE_MS)
    await tab.button("Keep medium").click()
    await expect(tab.level).to_have_value("medium")
    assert tab.session.level.name == "medium"
    # While something runs, a lower one is confirmed, too: it ends all of it.
    model.answers = [calling(HOLD), Answer(body=[], hangs=True)]
    await tab.send("Follow the log.")
    await tab.says("goes on, tick 1, exec")
    await tab.choose("low")
    await expect(tab.dialog.locator("li")).to_have_text(["turn 1", "command tail -f log"])
    assert await violations(tab.page) == []
    await tab.dialog.get_by_role("button", name="Cancel").click()
    await tab.says("goes on, tick 1, exec")
    assert tab.session.level.name == "medium"
    await tab.choose("low")
    await tab.dialog.get_by_role("button", name="Change").click()
    await tab.says("has ended: error")
    assert tab.session.level.name == "low"
    # Where nothing runs and less is permitted, there is nothing to ask.
    await served.plane.sessions.changes.set_level(TESTER, tab.session, "medium", {})
    await expect(tab.level).to_have_value("medium", timeout=PATIENCE_MS)
    await tab.choose("low")
    await expect(tab.button("Change to low")).to_have_count(0, timeout=PATIENCE_MS)
    await expect(tab.dialog).to_have_count(0)
    await until(lambda: tab.session.level.name == "low")


MARKDOWN = f"""# What I found

Three **strong** words, *one* emphasized, `a_b` as code, snake_case_kept and 2 * 3 * 4.

1. first
2. second
   - nested

file | lines
-----|-----:
a.py | 10

```python
print("<b>not bold</b>")
```

> quoted

[docs](https://docs.test/page) and https://plain.test/x, but not [this](javascript:window.planted=1)
or [that](data:text/html,x). ![picture](https://planted.test/pixel.png)

[![badge](https://planted.test/badge.svg)](https://docs.test/badge) ![inline](data:image/svg+xml,x)

[hidden]: https://planted.test/definition "never out of sight"

<javascript:window.planted=1> kept\\_as\\_it\\_is http://xn--80ak6aa92e.test/

{HOSTILE} <script>window.planted = 1</script> <a href="javascript:window.planted=1">raw</a>
"""


async def test_runs_show_markdown_and_nothing_else(
    admin: Console, served: ServedPlane, model: ModelServer
) -> None:
    tab = await tab_of(admin, served)
    asked: list[str] = []
    tab.page.on("request", lambda request: asked.append(request.url))
    model.answers = [Answer(MARKDOWN)]
    await tab.send("**Not** _mine_.")
    await tab.says("Run 1 has ended: ok")
    run = tab.run(1)
    await expect(run.locator(".user .text")).to_have_text("**Not** _mine_.")
    said = run.locator(".markdown")
    await expect(said.locator("h4")).to_have_text("What I found", timeout=PATIENCE_MS)
    await expect(said.locator("strong")).to_have_text(["strong"])
    await expect(said.locator("em")).to_have_text(["one"])
    await expect(said.locator("p code")).to_have_text(["a_b"])
    await expect(said).to_contain_text("snake_case_kept and 2 * 3 * 4")
    await expect(said.locator("ol > li")).to_have_count(2)
    await expect(said.locator("ol ul > li")).to_have_text(["nested"])
    await expect(said.locator("th")).to_have_text(["file", "lines"])
    await expect(said.locator("td")).to_have_text(["a.py", "10"])
    await expect(said.locator("td.right")).to_have_text(["10"])
    await expect(said.locator("p.info")).to_have_text(["python"])
    await expect(said.locator("pre")).to_have_text('print("<b>not bold</b>")')
    await expect(said.locator("blockquote")).to_have_text("quoted")
    # Links say where they lead, and lead nowhere else; nothing is loaded, and no markup is one.
    links = await said.locator("a").evaluate_all("all => all.map((each) => [each.href, each.rel])")
    kept = ["https://docs.test/page", "https://plain.test/x", "https://planted.test/pixel.png"]
    kept += ["https://docs.test/badge", "https://planted.test/definition"]
    kept += ["http://xn--80ak6aa92e.test/"]
    assert [href for href, _ in links] == kept
    assert {rel for _, rel in links} == {"noopener noreferrer"}
    await expect(said).to_contain_text("docs (docs.test)")
    await expect(said).to_contain_text("[this](javascript:window.planted=1)")
    await expect(said).to_contain_text("picture: badge (docs.test)")
    await expect(said).to_contain_text("![inline](data:image/svg+xml,x)")
    await expect(said).to_contain_text(
        '[hidden]: https://planted.test/definition "never out of sight"'
    )
    await expect(said).to_contain_text(
        "<javascript:window.planted=1> kept_as_it_is http://xn--80ak"
    )
    await expect(said).to_contain_text("U+202E")
    await expect(said.locator("img, script, b, style, iframe")).to_have_count(0)
    assert await tab.page.evaluate("window.planted") is None
    assert not [url for url in asked if "planted.test" in url]
    assert await violations(tab.page) == []


# By name, texts that are costly for a parser that looks back, or again. Longer ones are not parsed.
COSTLY = {
    "ticks": "`".join("a" * (at % 50) for at in range(2500)),
    "marks": "*_**__~~[" * 7000,
    "spaces": "# a" + " " * 60_000 + "b",
    "rules": "- " * 32_000 + "x",
    "quotes": "> " * 32_000,
    "items": "\n".join(" " * (at % 20) + "- x" for at in range(6000)),
    "cells": "|" + " |" * 32_000,
    "links": "[a](" * 16_000,
    "lists": "\n".join(" " * (2 * at) + "- x" for at in range(250)),
    "emphasis": "*a " * 10_000 + "b* " * 10_000,
    "brackets": "[" * 30_000 + "]" * 30_000,
    "addresses": "http://a " * 7000,
}
COSTS = """async (texts) => {
  const {Markdown, load} = await import("/console/markdown.js");
  await load();
  const {html, render} = await import("/console/vendor/preact.js");
  const took = {};
  for (const [name, text] of Object.entries(texts)) {
    const place = document.createElement("div");
    const begun = performance.now();
    render(html`<${Markdown} text=${text} />`, place);
    took[name] = performance.now() - begun;
  }
  return took;
}"""


async def test_no_text_is_costly_to_show(admin: Console) -> None:
    """Twice the text takes about twice the time, not four times."""
    await admin.page.evaluate(COSTS, COSTLY)  # compiles
    halves = {name: text[: len(text) // 2] for name, text in COSTLY.items()}
    once = await admin.page.evaluate(COSTS, halves)
    twice = await admin.page.evaluate(COSTS, COSTLY)
    for name, took in twice.items():
        assert took < 3 * once[name] + 300, (name, once[name], took)


# Texts that a parser shows in part, or whose elements would be nested too deeply for a page.
WHOLE = {
    "quotes": "> " * 200 + "the end",
    "lists": "- " * 200 + "the end",
    "emphasis": "*a " * 1000 + "the end" + " b*" * 1000,
    "length": "# " + "long " * 30_000 + "the end",
}
SHOWN = """async (texts) => {
  const {Markdown, load} = await import("/console/markdown.js");
  const {html, render} = await import("/console/vendor/preact.js");
  await load();
  const shown = {};
  for (const [name, text] of Object.entries(texts)) {
    const place = document.createElement("div");
    render(html`<${Markdown} text=${text} />`, place);
    shown[name] = place.textContent;
  }
  return shown;
}"""


async def test_a_text_that_is_nested_too_deeply_is_shown_as_it_is(admin: Console) -> None:
    assert await admin.page.evaluate(SHOWN, WHOLE) == WHOLE


async def test_who_may_not_change_the_level_sees_why(
    browser: Browser, served: ServedPlane, model: ModelServer
) -> None:
    bounds = KeyBounds(max_level="medium")
    keys = {
        each.name: await served.plane.key_edits.create("admin", each)
        for each in (
            Principal("ci", Role.OPERATOR, bounds=bounds),
            Principal("dashboard", Role.VIEWER),
        )
    }
    session = await served.session(policy=EDIT)
    mine = await served.session(
        policy=EDIT, principal=Principal("ci", Role.OPERATOR, bounds=bounds)
    )
    handle = await served.plane.sessions.changes.rotate_handle(TESTER, session)
    async with opened(browser, served.address) as console:
        await console.sign_in(keys["ci"])
        tab = await Tab(console, mine).open()
        await expect(tab.level).to_be_enabled()
        options = tab.level.locator("option:disabled")
        await expect(options).to_have_text(["high"])
        await expect(tab.level).to_have_accessible_description(
            "Above the max_level of your key: high."
        )
        # A level that the key may not give is not given again by a run.
        await served.plane.sessions.changes.set_level(TESTER, mine, "high", {})
        await expect(tab.level).to_have_value("high", timeout=PATIENCE_MS)
        assert await sent_level(tab) is None
    async with opened(browser, served.address) as console:
        await console.sign_in(keys["dashboard"])
        await console.go(f"sessions/{session.id}/run")
        level = console.page.get_by_label("Permission level")
        await expect(level).to_be_disabled(timeout=PATIENCE_MS)
        await expect(level).to_have_accessible_description("A viewer's key only reads.")
        await expect(console.page.get_by_label("Message")).to_have_count(0)
    async with opened(browser, served.address) as console:
        await console.page.get_by_label("API key").fill(handle)
        await console.page.get_by_label("Id of the handle's session").fill(session.id)
        await console.page.keyboard.press("Enter")
        await expect(console.page.locator(".session-head")).to_be_visible(timeout=PATIENCE_MS)
        tab = await Tab(console, session).open()
        await expect(tab.level).to_be_disabled()
        await expect(tab.level).to_have_accessible_description(
            "Only the session's host may change its level."
        )
        assert await sent_level(tab) is None
    for name in keys:
        await served.plane.key_edits.revoke("admin", name)


async def test_without_a_model_the_page_says_how_to_configure_one(
    admin: Console, served: ServedPlane
) -> None:
    session = await served.session(policy=EDIT)
    await admin.go(f"sessions/{session.id}/run")
    await admin.shows("No model is configured")
    await admin.shows("PADDOCK_MODELS")
    await expect(admin.page.get_by_label("Message")).to_have_count(0)
    assert await violations(admin.page) == []


def streamed(*events: tuple[str, dict[str, Any]]) -> str:
    """Events as a control plane streams them."""
    return "".join(
        f"id: {at}\nevent: {name}\ndata: {json.dumps(data)}\n\n"
        for at, (name, data) in enumerate(events)
    )


async def scripted(page: Page, body: str) -> None:
    """Answers what is sent with that stream."""

    async def answer(route: Route) -> None:
        await route.fulfill(body=body, content_type="text/event-stream")

    await page.route("**/send", answer)


def child(spawn: str, label: str, call: str | None, *within: str) -> tuple[str, dict[str, Any]]:
    path = {"spawn_path": list(within)} if within else {}
    members = {"spawn_id": spawn, "child_session_id": f"session-{spawn}", "label": label}
    return "spawn_start", {**members, "call_id": call, **path}


def child_ends(spawn: str, *within: str, **members: Any) -> tuple[str, dict[str, Any]]:
    path = {"spawn_path": list(within)} if within else {}
    ended = {"text": "", "is_error": False, "error": None, "tokens_used": 15}
    return "spawn_end", {"spawn_id": spawn, **ended, **members, **path}


OUTCOME = {"tag": "ok", "value": "All done.", "metadata": {"tokens": 99}}
TREE: tuple[tuple[str, dict[str, Any]], ...] = (
    ("start", {"turn_number": 1}),
    ("tick", {"tick": 1}),
    *(
        ("tool_call", {"tick": 1, "id": call, "tool": "spawn", "arguments": '{"label": "x"}'})
        for call in ("call_0", "call_1")
    ),
    child("a", f"first {HOSTILE}", "call_0"),
    child("b", "second", "call_1"),
    ("start", {"turn_number": 1, "spawn_path": ["a"]}),
    ("tick", {"tick": 1, "spawn_path": ["b"]}),
    ("tick", {"tick": 1, "spawn_path": ["a"]}),
    ("text", {"tick": 1, "text": f"said by the first {HOSTILE}", "spawn_path": ["a"]}),
    ("text", {"tick": 1, "text": "said by the second", "spawn_path": ["b"]}),
    (
        "tool_call",
        {"tick": 1, "id": "call_0", "tool": "spawn", "arguments": "{}", "spawn_path": ["a"]},
    ),
    child("c", "grandchild", "call_0", "a"),
    ("tick", {"tick": 1, "spawn_path": ["a", "c"]}),
    ("text", {"tick": 1, "text": "said by the grandchild", "spawn_path": ["a", "c"]}),
    child_ends("c", "a", text="said by the grandchild"),
    child_ends("b", is_error=True, error="the second has failed", tokens_used=7),
    ("tool_result", {"tick": 1, "id": "call_1", "content": "Failed: the second has failed"}),
    child_ends("a"),
    ("tool_result", {"tick": 1, "id": "call_0", "content": "the first is done"}),
    # Of a child whose events were missed, its last text is shown; of one whose start was, nothing.
    child("d", "silent", None),
    child_ends("d", text="said at its end"),
    ("text", {"tick": 1, "text": "said by nobody", "spawn_path": ["missed"]}),
    ("tick", {"tick": 2}),
    ("text", {"tick": 2, "text": "All done."}),
    ("end", {"turn_number": 1, "outcome": OUTCOME, "tokens_used": 99, "operations": []}),
)


async def test_children_are_threads_beneath_the_calls_that_started_them(
    admin: Console, served: ServedPlane, model: ModelServer
) -> None:
    tab = await tab_of(admin, served)
    await scripted(tab.page, streamed(*TREE))
    await tab.send("Spawn.")
    await tab.says("Run 1 has ended: ok")
    first, second = (tab.calls().filter(has_text=text).first for text in ("the first", "second"))
    thread = first.get_by_role("group", name="thread of first")
    await expect(thread).to_contain_text("said by the first", timeout=PATIENCE_MS)
    grandchild = thread.get_by_role("group", name="thread of grandchild")
    await expect(grandchild).to_contain_text("said by the grandchild")
    await expect(grandchild).not_to_contain_text("said by the first")
    failed = tab.run(1).get_by_role("group", name="thread of second")
    await expect(failed).to_contain_text("said by the second")
    await expect(failed).to_contain_text("the second has failed")
    state = tab.run(1).locator(".child > summary").filter(has_text="second")
    await expect(state).to_contain_text("failed 7 tokens")
    await expect(tab.run(1).get_by_role("link", name="session-c")).to_have_attribute(
        "href", "#/sessions/session-c"
    )
    await expect(second).to_be_visible()
    silent = tab.run(1).get_by_role("group", name="thread of silent")
    await expect(silent).to_contain_text("said at its end")
    await expect(tab.thread).not_to_contain_text("said by nobody")
    assert await tab.page.locator("main img, main script").count() == 0
    await expect(thread).to_contain_text("U+202Etxt")
    assert await violations(tab.page) == []
    await tab.page.set_viewport_size({"width": 360, "height": 740})
    await tab.page.wait_for_function("document.documentElement.scrollWidth === 360")


async def test_children_that_a_model_spawns_are_such_threads(
    admin: Console, served: ServedPlane, model: ModelServer
) -> None:
    tasks = [{"task": f"part {number}", "label": f"piece-{number}"} for number in (1, 2)]
    model.conversations["whole"] = [calling(*(("spawn", each) for each in tasks)), Answer("Both.")]
    for each in tasks:
        reads = calling(("read_file", {"path": "README.md"}))
        model.conversations[each["task"]] = [reads, Answer(f"{each['task']} is done")]
    policy = {**EDIT, "allowed_operations": [*EDIT["allowed_operations"], "spawn"]}
    # Of a key that is there: others spawn nothing.
    tab = await tab_of(admin, served, policy=policy, principal=Principal("admin", Role.ADMIN))
    await tab.send("whole")
    await tab.says("Run 1 has ended: ok")
    for each in tasks:
        thread = tab.run(1).get_by_role("group", name=f"thread of {each['label']}")
        await expect(thread).to_contain_text("README.md", timeout=PATIENCE_MS)
        await expect(thread).to_contain_text(f"{each['task']} is done")
    spawns = tab.calls().filter(has_text="piece-")
    await expect(spawns.first).to_contain_text("allow", timeout=PATIENCE_MS)
    await expect(tab.thread).to_contain_text("Both.")


async def test_a_stream_that_breaks_off_is_replaced_by_the_timeline(
    admin: Console, served: ServedPlane, model: ModelServer
) -> None:
    tab = await tab_of(admin, served)
    model.answers = [Answer("What was said.")]
    await tab.send("Say something.")
    await tab.says("Run 1 has ended: ok")
    # The answer ends before the run has.
    await scripted(tab.page, streamed(*TREE[:4]))
    await tab.send("Break off.")
    await expect(tab.run(1)).to_contain_text("What was said.", timeout=PATIENCE_MS)
    await expect(tab.run(1)).to_contain_text("Say something.")
    await tab.says("Run 1 has ended: ok")


async def test_what_can_not_be_sent_stays_with_the_reason(
    admin: Console, served: ServedPlane, model: ModelServer
) -> None:
    tab = await tab_of(admin, served, budget={"iterations": 1})
    admin.expected += ("409 (Conflict)", "400 (Bad Request)")
    await tab.send("x" * (64 * 1024 + 1))
    await admin.shows("messages.0.content")
    await expect(tab.message).to_have_value("x" * (64 * 1024 + 1))
    await tab.send("The only one.")
    await tab.says("Run 1 has ended: ok")
    await expect(tab.message).to_have_value("")
    # No run begins without budget, and the session ends.
    await tab.send("One too many.")
    await admin.shows("A run needs an active session; this one is budget-exceeded.")
    await tab.shows("The only one.")


# Of the pages' pure modules: what a call returns.
FED = """const {newRun, heard, own} = await import("/console/pages/run_thread.js");
  const {operationsOf} = await import("/console/pages/run_calls.js");
  let run = newRun(1, ["begin"], true);
  const hear = (name, data) => { run = heard(run, name, data); };
  const begin = (spawn_id) => hear("spawn_start", {spawn_id, label: "l", call_id: null});
  const call = (tool, more) => hear("tool_call", {tick: 1, id: "c", tool, arguments: "", ...more});
  hear("tick", {tick: 1});"""
COMPUTED: tuple[tuple[str, Any], ...] = (
    # However long a run is, a page keeps so much of it.
    (
        """for (let tick = 2; tick <= 2000; tick += 1) {
          hear("tick", {tick});
          hear("text", {tick, text: "x".repeat(50000)});
        }
        const {entries, gone} = own(run);
        const kept = entries.length;
        return [run.size < 5e6, kept < 301, gone + kept, entries.at(-1).tick]""",
        [True, True, 2001, 2000],
    ),
    (
        """for (let at = 0; at < 20000; at += 1) hear("text", {tick: 1, text: "x".repeat(100)});
        return [own(run).entries.at(-1).text.length < 140000, run.size < 140000]""",
        [True, True],
    ),
    (
        """for (let at = 0; at < 500; at += 1) {
          const spawn_path = [`s${at}`];
          begin(spawn_path[0]);
          hear("tick", {tick: 1, spawn_path});
          for (let n = 0; n < 40; n += 1) call("exec", {arguments: "x".repeat(9000), spawn_path});
        }
        return [run.threads.size < 102, run.size < 5e6, own(run).entries.length > 0]""",
        [True, True, True],
    ),
    # Names of children are no names of the page's own.
    (
        """begin("__proto__");
        hear("tick", {tick: 1, spawn_path: ["__proto__"]});
        return [run.threads.get("__proto__").entries.length, {}.entries === undefined]""",
        [1, True],
    ),
    # Endpoints give calls of one tick the same id: results come in their order.
    (
        """for (const tool of ["a", "b"]) call(tool);
        for (const content of ["1", "2"]) hear("tool_result", {tick: 1, id: "c", content});
        return own(run).entries.at(-1).calls.map(({tool, result}) => tool + result)""",
        ["a1", "b2"],
    ),
    # A file that says what a refusal says is none, if the record has an operation for each call.
    (
        """const of = (results, count) => operationsOf({
          entries: [{at: 1, kind: "tick", calls: results.map((result) => ({result}))}],
          operations: ["llm.complete", ..."abc".slice(0, count)].map((operation) => ({operation})),
        }).get(1).calls.map((each) => each?.operation ?? null);
        const said = "Refused: the arguments are not JSON";
        return [[[said, "text"], 2], [[said, "text"], 1], [[said, said], 1], [[said, null], 1]]
          .map(([results, count]) => of(results, count))""",
        [["a", "b"], [None, "a"], [None, None], [None, None]],
    ),
)


async def test_a_page_keeps_a_bounded_part_of_any_run(admin: Console) -> None:
    for source, expected in COMPUTED:
        found = await admin.page.evaluate(f"async () => {{ {FED} {source} }}")
        assert found == expected, source


async def test_the_page_is_used_by_keyboard_and_fits_a_phone(
    admin: Console, served: ServedPlane, model: ModelServer
) -> None:
    tab = await tab_of(admin, served)
    model.answers = [
        calling(LS, ("exec", {"argv": ["gcc", HOSTILE * 9]})),
        Answer(f"{HOSTILE} " * 40),
    ]
    await tab.message.fill("A first line")
    await tab.message.press("Shift+Enter")
    await tab.page.keyboard.type("and a second one")
    await tab.message.press("Enter")
    await tab.says("Run 1 has ended: ok")
    await expect(tab.run(1).locator(".said .text").first).to_have_text(
        "A first line\nand a second one", use_inner_text=True
    )
    await expect(tab.message).to_be_focused()
    assert await violations(tab.page) == []
    assert await tab.page.locator("main img").count() == 0
    await tab.page.set_viewport_size({"width": 360, "height": 740})
    await tab.page.wait_for_function("document.documentElement.scrollWidth === 360")
    await tab.page.set_viewport_size({"width": 1280, "height": 720})
    await tab.page.get_by_role("link", name="Paddock").focus()
    await tab.page.evaluate(TELL_WHEN_LEFT)
    for _ in range(MOST_STOPS):
        await tab.page.keyboard.press("Tab")
        if await tab.page.evaluate("window.left"):
            return
    raise AssertionError("the keyboard does not leave the page")


async def test_parents_and_children_are_linked_and_listed_as_a_tree(
    admin: Console, served: ServedPlane
) -> None:
    for name in ("root", "spawned", "grandchild"):
        await served.session(id=name, labels={"in": "tree"})
    family = {"root": (None, ["spawned"]), "spawned": ("root", ["grandchild"])}
    family["grandchild"] = ("spawned", [])

    def related(session: dict[str, Any]) -> dict[str, Any]:
        parent, children = family.get(session["id"], (None, []))
        return {**session, "parent": parent, "children": children}

    async def answer(route: Route) -> None:
        """As a control plane whose sessions spawn others."""
        response = await route.fetch(url=re.sub(r"parent=[^&]*&?", "", route.request.url))
        found = await response.json()
        if "items" in found:
            wanted = parse_qs(urlsplit(route.request.url).query).get("parent", [None])[0]
            items = [each for each in map(related, found["items"]) if each["parent"] == wanted]
            await route.fulfill(response=response, json={**found, "items": items})
        else:
            await route.fulfill(response=response, json=related(found))

    await admin.page.route(re.compile(r"/api/sessions(\?|/[^/]+$)"), answer)
    await admin.go("sessions?text=in:tree")
    await admin.reload()
    names = admin.page.locator(".sessions .who > div:first-child")
    tree = ["root", "spawned child of root", "grandchild child of spawned"]
    await expect(names).to_have_text(tree, timeout=PATIENCE_MS)
    await admin.go("sessions/spawned")
    facts = admin.page.locator(".facts")
    await expect(facts.get_by_role("link", name="root")).to_be_visible(timeout=PATIENCE_MS)
    await facts.get_by_role("link", name="grandchild").click()
    await expect(facts).to_contain_text("child of spawned", timeout=PATIENCE_MS)
    # A new child is asked for where its parent's are listed.
    asked = await admin.page.evaluate(NEW_CHILD)
    assert [each for each in asked if "/audit" not in each] == [
        "/api/sessions?limit=50&parent=root"
    ]
