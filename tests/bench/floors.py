"""The floors: the time that the engine and the kernel alone take for the same work."""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import docker

from orchestrator.host.engine.docker_spec import CPU_PERIOD

ENGINE_SECONDS = 60

# Times fork, exec and wait of /bin/true from a small process; prints nanoseconds as JSON.
FORK_LOOP = """
import json, os, sys, time
taken = []
for _ in range(int(sys.argv[1])):
    began = time.perf_counter_ns()
    child = os.fork()
    if not child:
        os.execv("/bin/true", ["true"])
    os.waitpid(child, 0)
    taken.append(time.perf_counter_ns() - began)
print(json.dumps(taken))
"""
# The same with posix_spawn, which uses vfork: the best that a command server can use.
SPAWN_LOOP = FORK_LOOP.replace(
    """    child = os.fork()
    if not child:
        os.execv("/bin/true", ["true"])
""",
    """    child = os.posix_spawn("/bin/true", ["true"], {})
""",
)
# Times lines of an interactive Python on its own terminal, from the write to the prompt, as a
# program that expects a prompt would. Prints nanoseconds as JSON.
EXPECT_LOOP = """
import json, os, pty, sys, time
child, master = pty.fork()
if not child:
    os.execv("/usr/bin/python3", ["python3", "-I", "-S", "-q"])
def expect():
    said = b""
    while not said.endswith(b">>> "):
        said += os.read(master, 65536)
expect()
taken = []
for _ in range(int(sys.argv[1])):
    began = time.perf_counter_ns()
    os.write(master, b"6 * 7\\n")
    expect()
    taken.append(time.perf_counter_ns() - began)
os.close(master)
os.waitpid(child, 0)
print(json.dumps(taken))
"""


class Floors:
    """The engine through the SDK's low-level client, as a program without Paddock would use it."""

    def __init__(self, image: str, at_once: int) -> None:
        self._image = image
        self.client = docker.APIClient(
            version="auto", timeout=ENGINE_SECONDS, max_pool_size=at_once + 1
        )
        self._threads = ThreadPoolExecutor(at_once)

    def close(self) -> None:
        """Ends its threads and connections."""
        self._threads.shutdown()
        self.client.close()

    def create(self, limits: dict[str, Any]) -> float:
        """Seconds to create and start a container with these limits and no network."""
        name = f"paddock-bench-{uuid4().hex}"
        host_config = self.client.create_host_config(
            network_mode="none",
            cpu_period=CPU_PERIOD,
            cpu_quota=round(limits["cpus"] * CPU_PERIOD),
            mem_limit=limits["memory_bytes"],
            memswap_limit=limits["memory_bytes"],
            pids_limit=limits["pids"],
        )
        with self._removed(name):
            began = time.perf_counter()
            made = self.client.create_container(
                self._image, name=name, entrypoint=["sleep", "infinity"], host_config=host_config
            )
            self.client.start(made["Id"])
            return time.perf_counter() - began

    def exec_true(self, container: str, times: int) -> list[float]:
        """Seconds for each `docker exec` of true, with its exit code, one after another."""
        taken = []
        for _ in range(times):
            began = time.perf_counter()
            made = self.client.exec_create(container, ["true"])
            self.client.exec_start(made["Id"])
            exit_code = self.client.exec_inspect(made["Id"])["ExitCode"]
            taken.append(time.perf_counter() - began)
            if exit_code != 0:
                raise RuntimeError(f"docker exec of true ended with {exit_code}")
        return taken

    def exec_rate(self, containers: list[str], times: int) -> float:
        """`docker exec`s of true per second, in all containers at the same time."""
        began = time.perf_counter()
        for _ in self._threads.map(lambda name: self.exec_true(name, times), containers):
            pass
        return len(containers) * times / (time.perf_counter() - began)

    def fork_true(self, container: str, times: int) -> list[float]:
        """Seconds for each fork, exec and wait of true within a container."""
        argv = ["python3", "-I", "-S", "-c", FORK_LOOP, str(times)]
        made = self.client.exec_create(container, argv, stderr=False)
        return loop_seconds(self.client.exec_start(made["Id"]).decode())

    def working_set(self, container: str) -> int:
        """Bytes of memory that the engine can't reclaim: usage without inactive file pages."""
        memory = self.client.stats(container, stream=False, one_shot=True)["memory_stats"]
        stats = memory["stats"]  # cgroup v1 counts children in total_*, v2 always
        return int(memory["usage"] - stats.get("total_inactive_file", stats["inactive_file"]))

    def process(self, container: str) -> int:
        """The host's pid of a container's first process."""
        return int(self.client.inspect_container(container)["State"]["Pid"])

    @contextmanager
    def _removed(self, name: str) -> Iterator[None]:
        try:
            yield
        finally:
            self.client.remove_container(name, v=True, force=True)


def loop_seconds(printed: str) -> list[float]:
    """The output of a loop in a sandbox, in seconds."""
    return [nanoseconds / 1e9 for nanoseconds in json.loads(printed)]
