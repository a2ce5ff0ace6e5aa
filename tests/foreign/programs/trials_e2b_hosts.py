"""What programs do with E2B's SDK at host names below a domain. Runs in the SDK's environment."""

import os

from e2b import Sandbox

DOMAIN = os.environ["TRIAL_DOMAIN"]
PROXY = os.environ["TRIAL_PROXY"]
ADDRESS = {"domain": DOMAIN, "proxy": PROXY, "api_key": os.environ["PADDOCK_KEY"]}


def test_everything_is_reached_below_the_domain() -> None:
    with Sandbox.create("high", timeout=60, **ADDRESS) as sandbox:
        assert sandbox.get_host(3000) == f"3000-{sandbox.sandbox_id}.{DOMAIN}"
        assert sandbox.is_running()
        assert sandbox.commands.run("echo out").stdout == "out\n"
        sandbox.files.write("a.txt", "text")
        again = Sandbox.connect(sandbox.sandbox_id, **ADDRESS)
        assert again.files.read("a.txt") == "text"
        url = again.download_url("a.txt")
        assert url.startswith(f"https://49983-{sandbox.sandbox_id}.{DOMAIN}/files?")
        sandbox.pause()
        assert not sandbox.is_running()
        assert sandbox.connect(timeout=60).is_running()
