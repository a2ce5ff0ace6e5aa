"""The part of a sandbox that lets root inside write over the image: packages can be installed."""

from orchestrator.ground.errors import EngineUnavailableError
from orchestrator.host.engine.base import Bind, Engine, missing_image
from orchestrator.sandbox.sandboxes.parts import Part, Plan
from orchestrator.sandbox.sandboxes.sandbox_directories import SandboxDirectories


class LayerPart(Part):
    """A writable layer of limited size over the image, at levels that have one.

    It is the sandbox's own and ends with it. Nothing of the agent is in it.
    """

    name = "writable layer"

    def __init__(self, engine: Engine, directories: SandboxDirectories) -> None:
        self._engine = engine
        self._directories = directories

    async def open(self, plan: Plan) -> None:
        """Raises: EngineUnavailableError, MountError, ImageError, CapacityExhaustedError."""
        size = plan.level.root_bytes
        if size is None:
            return
        if plan.image_id is None:
            raise EngineUnavailableError("the sandbox's image is not known")
        image = await self._engine.image(plan.image_id)
        if image is None:
            raise missing_image(plan.image)
        directory, uid = plan.directory, plan.session.workspace.uid

        # A workspace or a volume may be in the place of one of the image's directories.
        taken = {bind.target for bind in plan.binds}

        def make() -> None:
            for path, place in directory.make_layer(image.layers, uid, size).items():
                if path not in taken:
                    plan.binds.append(Bind(str(place), path, read_only=False))

        await self._directories.make(directory, make)
        # The session's account is not needed: commands are root, and add accounts themselves.
        own = {str(directory.passwd), str(directory.group)}
        plan.binds[:] = [bind for bind in plan.binds if bind.source not in own]

    async def close(self, plan: Plan) -> None:
        """Raises: MountError, OSError, TimeoutError."""
        await self._directories.remove(plan.directory, plan.directory.remove_layer)
