"""The sandbox agent on a simulated kernel without Landlock, as behind some runtimes."""

import sys

sys.path.insert(0, "/opt/paddock")

from sandbox_agent import server


class LesserAgent(server.Agent):
    """Reports what such a kernel would."""

    def _say_hello(self) -> None:
        self._kernel = self._kernel._replace(landlock=0)
        super()._say_hello()


if __name__ == "__main__":
    server.Agent = LesserAgent  # type: ignore[misc]
    sys.exit(server.main())
