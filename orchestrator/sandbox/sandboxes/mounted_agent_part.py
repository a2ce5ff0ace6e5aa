"""The part of a sandbox that brings its agent, and says what of its image counts."""

from pathlib import PurePath

from orchestrator.ground.errors import SandboxUnavailableError, ValidationError
from orchestrator.host.engine.base import Container, Engine, Image, MountedAgent, missing_image
from orchestrator.sandbox.images.checked_images import CheckedImages
from orchestrator.sandbox.images.image_check import hidden_volumes, refuse_moved_mounts
from orchestrator.sandbox.images.image_facts import ImageFacts
from orchestrator.sandbox.images.mounted_agents import LABEL_AGENT, MountedAgents
from orchestrator.sandbox.sandboxes.parts import Part, Plan
from orchestrator.sandbox.sandboxes.workspace_paths import beside
from sandbox_agent.decide.mounted_agent import AGENT

# So many images are remembered by their ids, which never mean another one.
_MOST_IMAGES = 64


class MountedAgentPart(Part):
    """The mounted agent, and the image by the id that was looked up or checked."""

    name = "mounted agent"

    def __init__(self, engine: Engine, agents: MountedAgents, checked: CheckedImages) -> None:
        self._engine = engine
        self._agents = agents
        self._checked = checked
        self._images: dict[str, Image] = {}

    async def open(self, plan: Plan) -> None:
        """Raises: EngineUnavailableError; ValidationError if the level can't have the image."""
        if plan.image_id is None:
            raise SandboxUnavailableError("the sandbox has no image")
        facts = self._checked.of(plan.image_id)
        if facts is None:
            image = await self._image(plan.image_id)
            hidden = self._hidden(plan, hidden_volumes(plan.image, image))
            plan.agent = await self._agents.mounted(image, hidden)
        else:
            plan.agent = await self._checked_agent(plan, facts)
            plan.variables = facts.variables(plan.level.environment)
        plan.image = plan.image_id  # its name may get another meaning
        plan.labels[LABEL_AGENT] = PurePath(plan.agent.directory).name

    async def adopt(self, plan: Plan, container: Container) -> None:
        """Remembers which agent the container has; earlier ones have none."""
        if LABEL_AGENT in container.labels:
            plan.labels[LABEL_AGENT] = container.labels[LABEL_AGENT]

    async def close(self, plan: Plan) -> None:
        """An agent of an earlier version goes with the last container that has it mounted.

        Raises: EngineUnavailableError.
        """
        name = plan.labels.get(LABEL_AGENT)
        if name is not None and not self._agents.is_current(name):
            await self._agents.remove_unused()

    async def _checked_agent(self, plan: Plan, facts: ImageFacts) -> MountedAgent:
        problem = facts.problem(plan.level)
        if problem is not None:
            raise ValidationError(f"image {plan.image}: {problem}", field="image")
        hidden = self._hidden(plan, tuple(facts.volumes))
        await refuse_moved_mounts(self._engine, facts.id, (bind.target for bind in plan.binds))
        directory = await self._agents.directory()
        return MountedAgent(str(directory), AGENT, tuple(facts.environment), hidden)

    def _hidden(self, plan: Plan, volumes: tuple[str, ...]) -> tuple[str, ...]:
        """Raises: ValidationError if the workspace overlaps with one of them."""
        # The writable layer covers some of them.
        taken = {bind.target for bind in plan.binds}
        volumes = tuple(path for path in volumes if path not in taken)
        if plan.tenancy.vacant:
            return volumes
        return beside(plan.session.workspace_path, volumes)

    async def _image(self, image_id: str) -> Image:
        """An image of ours. Raises: EngineUnavailableError."""
        if image_id not in self._images:
            image = await self._engine.image(image_id)
            if image is None:
                raise missing_image(image_id)
            if len(self._images) >= _MOST_IMAGES:
                self._images.clear()
            self._images[image_id] = image
        return self._images[image_id]
