"""Sign-in by a real issuer of tokens, in another process."""

import asyncio
import base64
import hashlib
import json
import os
import re
import secrets
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
import pytest_asyncio
from aiohttp import ClientPayloadError, ClientResponse, ClientSession
from playwright.async_api import Browser, expect

from tests.support.console_page import PATIENCE_MS, opened
from tests.support.documents import blocks
from tests.support.issuer_process import AUDIENCE, CLIENT, IssuerProcess, issuer_process
from tests.support.served_plane import KEY, ServedPlane, served_plane
from tests.support.sources import ROOT

pytestmark = pytest.mark.asyncio(loop_scope="module")

_FILE = """\
[[oidc]]
name = "corp"
label = "Example Corporation"
issuer = "{issuer}"
audience = "{audience}"
client_id = "{client}"
redirect_uri = "{redirect}"
resource = "{audience}"
scopes = ["openid", "groups"]

[[oidc.rules]]
when = {{ groups = "platform" }}
role = "admin"

[[oidc.rules]]
when = {{ groups = "engineers" }}
role = "operator"
max_sessions = 3
max_level = "medium"
"""


class Signing:
    """A control plane, an issuer, and what goes between them."""

    def __init__(self, served: ServedPlane, issuer: IssuerProcess, file: Path) -> None:
        self.served, self.issuer, self.file = served, issuer, file

    async def configure(self) -> None:
        """Writes the operator's file, which a control plane notices."""
        self.file.write_text(
            _FILE.format(
                issuer=self.issuer.url,
                audience=AUDIENCE,
                client=CLIENT,
                redirect=self.served.address,
            )
        )
        await self.served.plane.reload.look()

    @asynccontextmanager
    async def asked(
        self, token: str, path: str = "api/sessions", method: str = "GET", **more: Any
    ) -> AsyncIterator[Any]:
        headers = {"Authorization": f"Bearer {token}"}
        async with (
            ClientSession(headers=headers) as http,
            http.request(method, self.served.address + path, **more) as answer,
        ):
            yield answer

    async def status(self, token: str, path: str = "api/sessions", method: str = "GET") -> int:
        async with self.asked(token, path, method) as answer:
            found: int = answer.status
            return found

    async def session(self, token: str) -> dict[str, Any]:
        body = {"permission_level": "low"}
        async with self.asked(token, "api/sessions", "POST", json=body) as answer:
            assert answer.status == 201, await answer.text()
            found: dict[str, Any] = await answer.json()
            return found


async def _ended(stream: ClientResponse) -> None:
    """Returns when the server has cut it off."""
    with pytest.raises(ClientPayloadError):
        await stream.content.read()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def signing() -> AsyncIterator[Signing]:
    with tempfile.TemporaryDirectory(prefix="pdk-") as directory:
        file = Path(directory) / "oidc.toml"
        file.touch()
        async with (
            served_plane(oidc_file=file) as served,
            issuer_process(served.address) as issuer,
        ):
            found = Signing(served, issuer, file)
            await found.configure()
            yield found


async def test_a_token_is_a_credential_with_the_bounds_of_its_rule(signing: Signing) -> None:
    token = await signing.issuer.token("alice.engineers")
    made = await signing.session(token)
    session = signing.served.plane.sessions.registry.get(made["id"])
    assert session is not None
    assert session.owner == "alice.engineers@corp"
    body = {"permission_level": "high"}
    async with signing.asked(token, "api/sessions", "POST", json=body) as answer:
        assert (answer.status, (await answer.json())["rule"]) == (403, "key-max-level")
    assert await signing.status(token, "api/keys") == 403
    other = await signing.issuer.token("bob.engineers")
    assert await signing.status(other, f"api/sessions/{made['id']}") == 404
    admin = await signing.issuer.token("carol.platform")
    assert await signing.status(admin, "api/keys") == 200


async def test_refusals_say_what_to_do_and_tell_nobody_who_exists(
    signing: Signing, caplog: pytest.LogCaptureFixture
) -> None:
    said = set()
    now = int(time.time())
    for claims in (
        {"aud": "https://other.test"},
        {"exp": now - 3600, "iat": now - 7200},
        {"iss": "https://evil.test"},
    ):
        async with signing.asked(await signing.issuer.token("alice.engineers", **claims)) as answer:
            assert answer.status == 401
            said.add((await answer.json())["detail"])
    assert said == {"the token is not valid here, or has expired: sign in again"}
    assert "its aud does not name https://paddock.test" in caplog.text
    assert "it has expired" in caplog.text
    async with signing.asked(await signing.issuer.token("nobody")) as answer:
        found = await answer.json()
    assert (answer.status, found["rule"]) == (403, "no-sign-in-rule")
    assert "ask the operator" in found["detail"]
    assert "no rule matches" in caplog.text


async def test_whoever_is_revoked_loses_streams_handles_and_tokens_for_good(
    signing: Signing,
) -> None:
    token = await signing.issuer.token("dave.engineers", iat=int(time.time()) - 5)
    made = await signing.session(token)
    place = f"api/sessions/{made['id']}"
    assert await signing.status(made["handle"], place) == 200
    async with (
        signing.asked(token, f"{place}/events", headers={"Accept": "text/event-stream"}) as own,
        signing.asked(made["handle"], f"{place}/events") as given,
    ):
        assert (own.status, given.status) == (200, 200)
        assert await signing.status(KEY, "api/users/dave.engineers@corp", "DELETE") == 204
        await asyncio.gather(_ended(own), _ended(given))
    assert await signing.status(token, place) == 401
    assert await signing.status(made["handle"], place) == 401
    # A restart forgets none of it.
    await signing.served.stop()
    await signing.served.restart()
    assert await signing.status(token, place) == 401
    assert await signing.status(made["handle"], place) == 401
    # Who signs in again has the session, but what was given out stays invalid.
    again = await signing.issuer.token("dave.engineers", iat=int(time.time()) + 2)
    assert await signing.status(again, place) == 200
    assert await signing.status(made["handle"], place) == 401
    async with signing.asked(KEY, "api/users") as answer:
        users = {each["name"]: each for each in (await answer.json())["items"]}
    assert users["dave.engineers@corp"]["role"] == "operator"
    assert await signing.status(KEY, "api/users/no%20name", "DELETE") == 400


async def test_a_newer_token_keeps_streams_and_its_expiry_ends_them(signing: Signing) -> None:
    now = int(time.time())
    # With the leeway of a minute, the first is valid for a few seconds yet.
    brief = await signing.issuer.token("erin.engineers", iat=now - 120, exp=now - 56)
    made = await signing.session(brief)
    place = f"api/sessions/{made['id']}/events"
    async with signing.asked(brief, place) as stream:
        assert stream.status == 200
        await _ended(stream)
    assert await signing.status(brief) == 401
    # The handle outlasts the token, as long as the file says.
    assert await signing.status(made["handle"], place.removesuffix("/events")) == 200


async def test_keys_are_rotated_and_a_slow_or_dead_issuer_delays_nobody_else(
    signing: Signing,
) -> None:
    known = await signing.issuer.token("frank.engineers")
    assert await signing.status(known) == 200
    await signing.issuer.order("delay", ms=60_000)
    # Whom the keys in memory verify is not delayed, nor is any key.
    assert await signing.status(await signing.issuer.token("grace.engineers")) == 200
    assert await signing.status(KEY) == 200
    await signing.issuer.stop()
    assert await signing.status(known) == 200
    await signing.configure()  # and nothing is known any more
    signing.file.write_text(signing.file.read_text() + "# changed\n")
    await signing.served.plane.reload.look()
    async with signing.asked(known) as answer:
        found = await answer.json()
    assert (answer.status, found["code"]) == (503, "sign_in_unavailable")
    assert "the operator" in found["detail"]
    async with signing.asked("", "api/sign-in") as answer:
        assert [each["available"] for each in (await answer.json())["items"]] == [False]
    await signing.issuer.start()  # with another key
    signing.file.write_text(signing.file.read_text() + "# changed again\n")
    await signing.served.plane.reload.look()
    assert await signing.status(known) == 401
    assert await signing.status(await signing.issuer.token("frank.engineers")) == 200


async def test_the_console_signs_in_by_code_with_pkce(
    signing: Signing, browser: Browser, tmp_path: Path
) -> None:
    async with opened(browser, signing.served.address) as console:
        page = console.page
        # The issuer's own pages lack these.
        console.expected += ("ERR_NAME_NOT_RESOLVED", "autocomplete attributes", "404 (Not Found)")
        button = page.get_by_role("button", name="Sign in with Example Corporation")
        await button.wait_for()
        await page.screenshot(path=tmp_path / "sign-in.png")
        await button.click()
        await page.locator("input[name=login]").fill("heidi.engineers")
        await page.locator("input[name=password]").fill("any")
        await page.keyboard.press("Enter")
        await page.get_by_role("button", name="Continue").click()
        await expect(page.get_by_text("live", exact=True)).to_be_visible(timeout=PATIENCE_MS)
        assert "code=" not in page.url
        kept = json.loads(await page.evaluate("sessionStorage.getItem('paddock.credential')"))
        assert kept["name"] == "heidi.engineers@corp"
        # The token is replaced before it expires, by what the issuer gave for that.
        await page.evaluate(
            "sessionStorage.setItem('paddock.credential', JSON.stringify("
            "{...JSON.parse(sessionStorage.getItem('paddock.credential')), until: 0}))"
        )
        await console.reload()
        await expect(page.get_by_text("live", exact=True)).to_be_visible(timeout=PATIENCE_MS)
        newer = json.loads(await page.evaluate("sessionStorage.getItem('paddock.credential')"))
        assert newer["token"] != kept["token"]
        await page.screenshot(path=tmp_path / "signed-in.png")
        # A code that this tab did not ask for is not redeemed.
        await page.evaluate("sessionStorage.removeItem('paddock.credential')")
        await page.goto(f"{signing.served.address}?code=stolen&state=other")
        await expect(page.get_by_text("was not begun in this tab")).to_be_visible()


async def test_a_code_is_worth_nothing_twice_or_without_its_verifier(signing: Signing) -> None:
    for spoiled in ("code", "code_verifier", "nonce", None):
        verifier, nonce = secrets.token_urlsafe(48), secrets.token_urlsafe(16)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest())
        query = {
            "response_type": "code",
            "client_id": CLIENT,
            "redirect_uri": signing.served.address,
            "scope": "openid groups",
            "state": "any",
            "nonce": nonce,
            "code_challenge": challenge.decode().rstrip("="),
            "code_challenge_method": "S256",
            "resource": AUDIENCE,
        }
        end = await signing.issuer.approve(
            f"{signing.issuer.url}/auth?{urlencode(query)}", "ivan.engineers"
        )
        code = parse_qs(urlsplit(end).query)["code"][0]
        body = {"issuer": "corp", "code": code, "code_verifier": verifier, "nonce": nonce}
        wrong = body if spoiled is None else {**body, spoiled: secrets.token_urlsafe(48)}
        statuses = []
        for _ in range(2):
            async with (
                ClientSession() as http,
                http.post(signing.served.address + "api/sign-in/token", json=wrong) as answer,
            ):
                statuses.append(answer.status)
        assert statuses == ([200, 401] if spoiled is None else [401, 401])


async def test_the_command_line_signs_in_by_device_flow_and_renews_its_token(
    signing: Signing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PADDOCK_URL", "PADDOCK_KEY", "PADDOCK_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    program = (sys.executable, "-m", "paddock")
    login = await asyncio.create_subprocess_exec(
        *(*program, "login", signing.served.address, "--sso", "--name", "work"),
        stderr=asyncio.subprocess.PIPE,
    )
    assert login.stderr is not None
    said = (await login.stderr.readline()).decode()
    found = re.search(r"open (\S+) and enter the code (\S+)", said)
    assert found is not None, said
    page = await signing.issuer.approve(f"{found[1]}?user_code={found[2]}", "judy.engineers")
    assert "Sign-in Success" in page
    said = (await login.stderr.read()).decode()
    assert (await login.wait(), "work is the current context" in said) == (0, True), said
    path = tmp_path / "paddock" / "contexts.json"
    assert path.stat().st_mode & 0o077 == 0
    kept = json.loads(path.read_text())
    first = kept["contexts"]["work"]
    assert first["key"] not in said
    first["renewal"]["until"] = 0
    path.write_text(json.dumps(kept))

    async def listed() -> int:
        listing = await asyncio.create_subprocess_exec(*program, "sessions", "list", "--json")
        return await listing.wait()

    # Both need the next token, and a refresh token is good for one.
    assert list(await asyncio.gather(listed(), listed())) == [0, 0]
    assert json.loads(path.read_text())["contexts"]["work"]["key"] != first["key"]


async def test_the_example_of_the_document_works(signing: Signing, tmp_path: Path) -> None:
    """The user has another name there."""
    text = (ROOT / "docs" / "sign-in.md").read_text().replace("alice@corp", "heidi.engineers@corp")
    (tmp_path / "paddock").symlink_to(Path(sys.executable).with_name("paddock"))
    process = await asyncio.create_subprocess_exec(
        *("bash", "-euc", "\n".join(each.text for each in blocks(text) if each.language == "sh")),
        env={
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "TOKEN": await signing.issuer.token("heidi.engineers"),
            "PADDOCK_URL": signing.served.address.rstrip("/"),
            "PADDOCK_KEY": KEY,
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()
    assert '"owner":"heidi.engineers@corp"' in said.decode().replace(" ", "")
