"""The guards of one sandbox: created with its confinement, lent to commands, kept for later."""

import contextlib
import errno
import functools
import os
import socket

from sandbox_agent.core.audit import EventBuffer
from sandbox_agent.core.limits import Meter
from sandbox_agent.core.loop import Loop
from sandbox_agent.decide.manifest import ReadManifest
from sandbox_agent.decide.protocol import Configuration
from sandbox_agent.enforce import profile
from sandbox_agent.enforce.command_process import Plan
from sandbox_agent.enforce.exec_record import ExecRecorder
from sandbox_agent.enforce.guard import Guard
from sandbox_agent.enforce.guards import compiled
from sandbox_agent.enforce.guards import setup as guard_setup
from sandbox_agent.enforce.guards.availability import available
from sandbox_agent.enforce.guards.forked import Forked, WaitingGuard
from sandbox_agent.enforce.guards.setup import Setup
from sandbox_agent.enforce.kernel import Kernel
from sandbox_agent.enforce.libraries import Libraries
from sandbox_agent.enforce.profile import Profile, Tool
from sandbox_agent.enforce.reads.pack_files import Held
from sandbox_agent.enforce.reads.reports import Reports
from sandbox_agent.enforce.root_inside import namespace

# Idle guards of a kind that are kept; one in Python takes about 1 MiB.
_KEPT = 2


class Guards:
    """Lends guards to commands, and keeps a few idle ones, as creating one takes long."""

    def __init__(
        self,
        loop: Loop,
        configuration: Configuration,
        kernel: Kernel,
        events: EventBuffer,
        programs: Libraries | None = None,
        waiting: WaitingGuard | None = None,
    ) -> None:
        """`programs` is what the level's commands need, if it is known.

        `waiting` may have a guard that was forked ahead.
        """
        self._loop = loop
        self._programs = programs
        self._waiting = waiting
        self._configuration = configuration
        self._kernel = kernel
        self._events = events
        self._recorder = ExecRecorder(
            loop, events, configuration.uid, undisturbed=kernel.undisturbed
        )
        self._meter = Meter()
        self._namespace: int | None = None  # that of commands that are root inside
        self._profile: Profile | None = None
        # Whether there is a compiled guard, and most commands have it.
        self._available = available()
        self._compiled = False
        # The files of the session's manifest; they stay the same for every guard.
        self.held: Held = {}
        self._idle: list[Guard] = []

    def confine(self) -> None:
        """Builds the confinement that every guard enters. There are no guards before this call.

        A guard that was forked ahead enters it while the caller gets the answer. Raises:
        ConfinementError if commands can't be confined, or the workspace is not there.
        """
        _check_workspace(self._configuration.workspace, self._configuration.uid)
        self._namespace = namespace.of_session(self._configuration)
        self._profile = self._build(profile.NO_TOOL)
        self._compiled = self._available and compiled.serves(self._profile)
        waiting = None if self._waiting is None else self._waiting.take()
        if waiting is not None:
            self._confine_waiting(waiting, self._profile)

    def _confine_waiting(self, waiting: Forked, held_to: Profile) -> None:
        """Makes it the first guard; one that can't be is dropped, and has run nothing."""
        setup = self._setup(held_to, self._compiled)
        if guard_setup.can_be_sent(setup):
            with contextlib.suppress(OSError):
                guard_setup.send(setup, waiting.socket)
                self._idle.append(self._own(Guard(setup, *self._shared, waiting=waiting)))
                return
        waiting.close()

    def prepare(self) -> None:
        """Creates the first guard in advance, if none has waited and there is room for it."""
        if self._profile is not None and not self._idle:
            with contextlib.suppress(OSError):
                self._idle.append(self._make(self._profile, self._compiled))

    def take(self, plan: Plan) -> Guard:
        """A guard for that command. Raises: OSError if no process can be created."""
        kind = self._compiled and compiled.runs(plan)
        for guard in [guard for guard in reversed(self._idle) if guard.settled]:
            if guard.compiled != kind:
                continue
            self._idle.remove(guard)
            if guard.idle:
                return guard
            guard.close()
        if self._profile is None:
            raise OSError(errno.EAGAIN, "the sandbox is not confined yet")
        return self._make(self._profile, kind)

    def take_for(self, tool: Tool, plan: Plan) -> Guard:
        """A guard for that tool's command only, with the tool's permissions.

        Raises: ConfinementError, OSError.
        """
        own = self._build(tool)
        kind = self._available and compiled.serves(own) and compiled.runs(plan)
        try:
            return self._make(own, kind)
        finally:
            own.close()

    def give_back(self, guard: Guard) -> None:
        """Takes back a guard whose command has ended."""
        same = sum(each.compiled == guard.compiled for each in self._idle)
        if same < _KEPT and not guard.closed and not guard.lost:
            self._idle.append(guard)
        else:
            guard.close()

    def _build(self, tool: Tool) -> Profile:
        more = self._programs, self.held, self._namespace
        return profile.build(self._configuration, self._kernel, tool, *more)

    def _make(self, held_to: Profile, kind: bool = False) -> Guard:
        setup = self._setup(held_to, kind)
        reads = held_to.reads
        connect = functools.partial(self._connect, reads.manifest) if reads else None
        return self._own(Guard(setup, *self._shared, connect))

    def _setup(self, held_to: Profile, kind: bool) -> Setup:
        own = self._configuration
        return Setup(own.uid, own.processes, held_to, own.workspace, kind)

    @property
    def _shared(self) -> tuple[ExecRecorder, Meter]:
        return self._recorder, self._meter

    def _own(self, guard: Guard) -> Guard:
        self._loop.on_exit(guard.pid, functools.partial(self._ended, guard))
        return guard

    def _connect(self, manifest: ReadManifest, broker_socket: socket.socket) -> Reports:
        return Reports(self._loop, self._events, self._recorder, manifest, broker_socket)

    def _ended(self, guard: Guard) -> None:
        if guard in self._idle:
            self._idle.remove(guard)
            guard.close()
        guard.ended()


def _check_workspace(path: str, uid: int) -> None:
    """Raises: ConfinementError unless the session's workspace is mounted: only it has its uid."""
    # What is decided by a path's text must hold for the file.
    if os.path.realpath(path) != path:
        raise profile.ConfinementError(f"the image has a symbolic link in {path}")
    try:
        mounted = os.stat(path).st_uid == uid
    except OSError:
        mounted = False
    if not mounted:
        raise profile.ConfinementError("the session's workspace is not mounted")
