"""Whether sessions can be created now: the doctor's cheap checks, which are requested often."""

import asyncio
import time
from pathlib import Path

from orchestrator.ground.check import Check, failure, ok, warning
from orchestrator.ground.loop_lag import LoopLag
from orchestrator.ground.store.database import Database
from orchestrator.ground.tasks import Tasks
from orchestrator.ground.threads import within
from orchestrator.host.node.base import Node
from orchestrator.host.node.kernel import check_prompts
from orchestrator.host.workspace.uid_range import UidRange
from orchestrator.operate.checks.engine import ENGINE, IMAGE, check_engine, check_image
from orchestrator.operate.checks.host import DISK, resource_checks
from orchestrator.operate.checks.levels import enforceable
from orchestrator.operate.checks.loop import loop_check
from orchestrator.operate.checks.quota import quota_check
from orchestrator.operate.checks.state import POLICY
from orchestrator.operate.checks.uids import range_check
from orchestrator.operate.operator.reload import Reload
from orchestrator.settings.settings import Settings

AUDIT = "audit"
_SECONDS = 5.0
_SLOW = "check whether its disk or the engine hangs"


class Readiness:
    """Checks that anyone may see: without host paths, and reused for `fresh_seconds`."""

    def __init__(
        self,
        settings: Settings,
        node: Node,
        database: Database,
        policy: Reload,
        tasks: Tasks,
        lag: LoopLag,
        uids: UidRange,
    ) -> None:
        self.fresh_seconds = 2.0
        self._settings = settings
        self._node = node
        self._database = database
        self._policy = policy
        self._quota = quota_check(node.storage.choice, reasons=False)
        self._tasks = tasks
        self._lag = lag
        self._uids = range_check(uids)
        self._asking = asyncio.Lock()
        self._asked_at = -float("inf")
        self._checks: list[Check] = []

    async def checks(self) -> list[Check]:
        """The checks' results, at most `fresh_seconds` old."""
        async with self._asking:
            if time.monotonic() - self._asked_at >= self.fresh_seconds:
                self._checks = await self._look()
                self._asked_at = time.monotonic()
            return self._checks

    async def _look(self) -> list[Check]:
        settings = self._settings
        engine, image, audit, resources = await asyncio.gather(
            within(check_engine(self._node.engine, settings.runtime), _SECONDS, _late(ENGINE)),
            within(check_image(self._node.engine, settings.image), _SECONDS, _late(IMAGE)),
            within(self._audit(), _SECONDS, _late(AUDIT)),
            within(self._resources(), _SECONDS, [_late(DISK)]),
        )
        levels = enforceable(self._policy.levels, await self._node.facts())
        policy = policy_check(self._policy.problems, settings.levels_dir)
        tasks = self._tasks.check()
        loop = loop_check(self._lag.worst())
        advice = [policy, tasks, loop, self._quota, self._uids, check_prompts()]
        return [engine, image, audit, *resources, *advice, *levels]

    async def _resources(self) -> list[Check]:
        return resource_checks(self._settings, await self._node.resources())

    async def _audit(self) -> Check:
        try:
            await self._database.write(lambda connection: None)
        except Exception as error:  # noqa: BLE001 - whatever it is, it goes into the report
            return failure(AUDIT, str(error), "check the disk of the state directory")
        return ok(AUDIT, "the ledger can be written")


def policy_check(problems: dict[Path, str], levels_dir: Path | None = None) -> Check:
    """Whether the operator's files are in force as they are; otherwise earlier versions are.

    For a level's file the check has the reason. Reasons for others may name keys, so it has none.
    """
    if not problems:
        return ok(POLICY, "levels, keys and rules of tools are as their files say")
    texts = [_problem_text(path, problems[path], levels_dir) for path in sorted(problems)]
    return warning(
        POLICY,
        f"not in force, because they can't be used: {', '.join(dict.fromkeys(texts))}",
        "see the log or `paddock doctor`, and fix the file",
    )


def _problem_text(path: Path, problem: str, levels_dir: Path | None) -> str:
    """The file's name; for a level, also the line, the field and the reason."""
    is_level = levels_dir is not None and path.parent == levels_dir
    return problem.removeprefix(f"{levels_dir}/") if is_level else path.name


def _late(name: str) -> Check:
    return failure(name, f"no answer within {_SECONDS:g} s", _SLOW)
