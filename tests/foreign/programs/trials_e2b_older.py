"""What programs do with an SDK of E2B's before 2.0. Runs in that SDK's environment."""

import os

from e2b import Sandbox

os.environ["E2B_DOMAIN"] = os.environ["TRIAL_DOMAIN"]
os.environ["E2B_API_KEY"] = os.environ["PADDOCK_KEY"]
PROXY = {"proxy": os.environ["TRIAL_PROXY"]}


def test_create_use_list_kill() -> None:
    sandbox = Sandbox(template="high", timeout=60, metadata={"user": "Anna & Co"}, **PROXY)
    try:
        assert sandbox.is_running()
        assert sandbox.commands.run("echo out").stdout == "out\n"
        sandbox.files.write("a.txt", "text")
        assert sandbox.files.read("/home/user/a.txt") == "text"
        sandbox.set_timeout(90)
        # Its `connect` does not use the proxy for everything, so it finds no name here.
        assert sandbox.commands.run("cat a.txt").stdout == "text"
        (listed,) = Sandbox.list(**PROXY)
        assert (listed.sandbox_id, listed.metadata) == (sandbox.sandbox_id, {"user": "Anna & Co"})
    finally:
        sandbox.kill()
    assert not sandbox.is_running()
