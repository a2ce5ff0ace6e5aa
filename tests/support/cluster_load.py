"""Clients of a cluster that run commands and ask for new sessions until they are told to stop."""

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

from paddock import PaddockSync
from paddock.client.errors import ClusterUnavailableError
from tests.support.limits import WAIT_SECONDS


@dataclass(slots=True)
class Load:
    """What the clients were told so far. Any error that is not expected ends the test."""

    # Ids of acknowledged commands by session, and how long each took, in seconds.
    commands: dict[str, list[str]]
    seconds: list[float] = field(default_factory=list)
    # By their numbers.
    created: list[int] = field(default_factory=list)
    refused: list[ClusterUnavailableError] = field(default_factory=list)
    _stopped: bool = False
    _failed: BaseException | None = None
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def wait(self, condition: Callable[[], bool]) -> None:
        """Until it holds, which is asked after each answer. Raises: what a client has met."""

        def over() -> bool:
            return self._failed is not None or condition()

        with self._changed:
            assert self._changed.wait_for(over, WAIT_SECONDS), "the clients stand still"
        if self._failed is not None:
            raise self._failed

    def goes_on(self, commands: int = 10, seconds: float = 0.0) -> None:
        """So many more commands of each session are acknowledged, for at least so long."""
        before = {name: len(ids) for name, ids in self.commands.items()}
        end = time.monotonic() + seconds
        self.wait(
            lambda: (
                time.monotonic() >= end
                and all(len(ids) >= before[name] + commands for name, ids in self.commands.items())
            )
        )

    def runs(self, paddock: PaddockSync, name: str) -> None:
        """Commands of one session, one after the other."""
        session = paddock.sessions.get(name)
        while True:
            begun = time.perf_counter()
            done = session.exec("pwd")
            with self._told() as stopped:
                assert done.stdout == "/workspace\n"
                self.seconds.append(time.perf_counter() - begun)
                self.commands[name].append(done.command_id)
            if stopped:
                return

    def creates(self, paddock: PaddockSync) -> None:
        """New sessions, with ids of the client's and of the gateway's, which end at once."""
        for number in itertools.count():
            name, refusal = f"asked-{number}" if number % 2 else None, None
            try:
                paddock.sessions.create(id=name, permission_level="low").close(purge=True)
            except ClusterUnavailableError as error:
                refusal = error
            with self._told() as stopped:
                if refusal is None:
                    self.created.append(number)
                else:
                    self.refused.append(refusal)
            if stopped:
                return

    def guarded(self, work: Callable[[], None]) -> None:
        """Whoever waits is told how `work` fails."""
        try:
            work()
        except BaseException as error:
            with self._told():
                self._failed = error

    def stop(self) -> None:
        """Each client ends after its next answer."""
        with self._told():
            self._stopped = True

    @contextmanager
    def _told(self) -> Iterator[bool]:
        """Something changes; gives whether clients should end."""
        with self._changed:
            yield self._stopped
            self._changed.notify_all()


@contextmanager
def loaded(paddock: PaddockSync, sessions: Sequence[str]) -> Iterator[Load]:
    """A client for each of these sessions, and one that asks for new ones."""
    load = Load({name: [] for name in sessions})
    work: list[Callable[[], None]] = [lambda: load.creates(paddock)]
    work += [lambda name=name: load.runs(paddock, name) for name in sessions]  # type: ignore[misc]
    with ThreadPoolExecutor(len(work)) as pool:
        for each in work:
            pool.submit(load.guarded, each)
        try:
            yield load
        finally:
            load.stop()
    load.wait(lambda: True)
