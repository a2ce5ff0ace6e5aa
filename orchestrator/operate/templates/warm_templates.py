"""Sessions of templates that can begin at once: their sandboxes and files are made ahead."""

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

from orchestrator.ground.errors import PaddockError
from orchestrator.ground.tasks import Round, Rounds, Supervised, TaskName, Tasks
from orchestrator.operate.templates.request import template_limits
from orchestrator.operate.templates.templates import ShownTemplate, Templates
from orchestrator.rules.policy.levels import Levels, effective_limits
from orchestrator.rules.templates.template_files import TemplateFiles
from orchestrator.sandbox.named_snapshots.copies_ahead import CopiesAhead
from orchestrator.sandbox.sandboxes.warm_pool import WarmPool
from orchestrator.state.shapes import Shape

log = logging.getLogger(__name__)

# Copies of large workspaces take long.
_ROUND_SECONDS = 1200.0
# Events cause rounds earlier: this is for what has none, such as an image that was built anew.
_LONGEST_PAUSE = 60.0


class _Kept(NamedTuple):
    shape: Shape
    snapshot_id: str
    number: int


class WarmTemplates:
    """Has as many sandboxes wait for sessions of each template as its file says (`warm`).

    They wait in the pool, within its limits, and each has a copy of the prepared workspace. A
    template that is not built has none, and those of an earlier version are removed.
    """

    def __init__(
        self,
        templates: Templates,
        files: TemplateFiles,
        levels: Levels,
        pool: WarmPool,
        copies: CopiesAhead,
    ) -> None:
        self._templates = templates
        self._files = files
        self._pool = pool
        self._copies = copies
        # By the template's name.
        self._kept: dict[str, _Kept] = {}
        self._changed = asyncio.Event()
        self._rounds = Rounds(_ROUND_SECONDS)
        self._task: Supervised | None = None
        for changes in (templates.on_change, files.on_change, levels.on_change, copies.when_taken):
            changes(self._changed.set)

    def run(self, tasks: Tasks) -> None:
        """Begins, unless no sandboxes may wait here."""
        if self._pool.runs:
            self._task = tasks.start(TaskName.WARM_TEMPLATES, self._keep, rounds=self._rounds)

    async def close(self) -> None:
        """Makes nothing more; the pool and the storage remove what waits."""
        if self._task is not None:
            await self._task.close()

    def ready(self, name: str) -> int:
        """How many sessions of the template of that name can begin at once."""
        kept = self._kept.get(name)
        if kept is None:
            return 0
        return min(self._pool.shapes.count(kept.shape), self._copies.ready[kept.snapshot_id])

    async def _keep(self) -> None:
        while True:
            self._changed.clear()
            with self._rounds.round() as this:
                await self._round(this)
            with suppress(TimeoutError):
                async with asyncio.timeout(_LONGEST_PAUSE):
                    await self._changed.wait()

    async def _round(self, this: Round) -> None:
        try:
            warm = any(template.warm for template in self._files.values())
            self._kept = self._granted(await self._templates.all() if warm else [])
            if self._kept:
                await self._pool.calm()
            wanted = {kept.snapshot_id: kept.number for kept in self._kept.values()}
            if wanted or self._copies.ready:
                await self._copies.keep(wanted)
        except (PaddockError, OSError) as error:
            this.failed = True
            log.warning("sessions of templates are not made ahead, tried again later: %s", error)

    def _granted(self, shown: Iterable[ShownTemplate]) -> dict[str, _Kept]:
        """What the pool has room for, of what the templates want."""
        wanted = {each.template.name: kept for each in shown if (kept := _wanted(each)) is not None}
        granted = self._pool.keep({kept.shape: kept.number for kept in wanted.values()})
        return {
            name: kept._replace(number=granted[kept.shape])
            for name, kept in wanted.items()
            if granted[kept.shape]
        }


def _wanted(shown: ShownTemplate) -> _Kept | None:
    """None unless the template is built, and its file asks for sandboxes that wait."""
    template, version, snapshot = shown.template, shown.version, shown.snapshot
    if not template.warm or shown.state != "built" or version is None or snapshot is None:
        return None
    limits = effective_limits(version.level, template_limits(template, version.level))
    shape = Shape.of(version.image, version.image_id, version.level)
    return _Kept(shape.beginning_as(snapshot.id, limits), snapshot.id, template.warm)
