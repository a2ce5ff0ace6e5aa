"""The part of a sandbox that brings the agent for an image that has none."""

from orchestrator.ground.errors import ValidationError
from orchestrator.host.engine.base import Engine, MountedAgent
from orchestrator.sandbox.images.checked_images import CheckedImages
from orchestrator.sandbox.images.image_check import refuse_moved_mounts
from orchestrator.sandbox.images.mounted_agents import LABEL_AGENT, MountedAgents
from orchestrator.sandbox.sandboxes.parts import Part, Plan
from orchestrator.sandbox.sandboxes.workspace_paths import beside
from sandbox_agent.decide.mounted_agent import AGENT


class MountedAgentPart(Part):
    """The mounted agent, and the image by the id that was checked; nothing for most of our own."""

    name = "mounted agent"

    def __init__(self, engine: Engine, agents: MountedAgents, checked: CheckedImages) -> None:
        self._engine = engine
        self._agents = agents
        self._checked = checked

    async def open(self, plan: Plan) -> None:
        """Raises: EngineUnavailableError; ValidationError if the level can't have the image."""
        facts = None if plan.image_id is None else self._checked.of(plan.image_id)
        if facts is None:
            if plan.level.root_bytes is not None:
                # The image's own agent and its interpreter are in the writable layer.
                await self._mount(plan, unset=(), hidden=())
            return
        problem = facts.problem(plan.level)
        if problem is not None:
            raise ValidationError(f"image {plan.image}: {problem}", field="image")
        hidden = tuple(facts.volumes)
        if not plan.tenancy.vacant:
            hidden = beside(plan.session.workspace_path, facts.volumes)
        # The writable layer covers some of them.
        taken = {bind.target for bind in plan.binds}
        hidden = tuple(path for path in hidden if path not in taken)
        await refuse_moved_mounts(self._engine, facts.id, (bind.target for bind in plan.binds))
        plan.image = facts.id  # its name may get another meaning
        await self._mount(plan, unset=tuple(facts.environment), hidden=hidden)
        plan.variables = facts.variables(plan.level.environment)

    async def _mount(self, plan: Plan, unset: tuple[str, ...], hidden: tuple[str, ...]) -> None:
        """Raises: EngineUnavailableError."""
        directory = await self._agents.directory()
        plan.agent = MountedAgent(str(directory), AGENT, unset=unset, hidden=hidden)
        plan.labels[LABEL_AGENT] = directory.name
