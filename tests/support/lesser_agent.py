"""The sandbox agent, on a kernel that has no Landlock, as runtimes between it and us may be."""

import sys

sys.path.insert(0, "/opt/paddock")

from sandbox_agent import server


class LesserAgent(server.Agent):
    """Says what such a kernel would make it say."""

    def _say_hello(self) -> None:
        self._abi = 0
        super()._say_hello()


if __name__ == "__main__":
    server.Agent = LesserAgent  # type: ignore[misc]
    sys.exit(server.main())
