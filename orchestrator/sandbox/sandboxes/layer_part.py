"""The part of a sandbox that lets root inside write over the image: packages can be installed."""

from pathlib import Path

from orchestrator.ground.errors import CapacityExhaustedError, EngineUnavailableError
from orchestrator.host.engine.base import Bind, Container, Engine, Image, missing_image
from orchestrator.host.node.resources import free_bytes
from orchestrator.host.workspace.root_layer import Start
from orchestrator.sandbox.images.image_check import ABSENT, DIRECTORIES, FILES, with_parents
from orchestrator.sandbox.sandboxes.parts import Part, Plan
from orchestrator.sandbox.sandboxes.sandbox_directories import SandboxDirectories
from orchestrator.sandbox.sandboxes.workspaces import Workspaces

_SECTOR = 512
_RETRY_SECONDS = 60


class LayerPart(Part):
    """A writable layer of limited size over the image, at levels that have one.

    It is the sandbox's own and ends with it. It begins as the image; of a session that began as a
    snapshot with a layer, as that layer. Nothing of the agent is in it.
    """

    name = "writable layer"

    def __init__(
        self,
        engine: Engine,
        directories: SandboxDirectories,
        workspaces: Workspaces,
        reserve: int,
    ) -> None:
        """`reserve` bytes of the disk stay free."""
        self._engine = engine
        self._directories = directories
        self._workspaces = workspaces
        self._reserve = reserve

    async def open(self, plan: Plan) -> None:
        """Raises: EngineUnavailableError, MountError, ImageError, CapacityExhaustedError.

        ConflictError if its session's layer can't be used.
        """
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
            start = self._start(plan, image)
            layer = directory.make_layer(image.layers, image.id, uid, size, start)
            for path, place in layer.items():
                if path not in taken:
                    plan.binds.append(Bind(str(place), path, read_only=False))

        await self._directories.make(directory, make, copies=True)
        # The session's account is not needed: commands are root, and add accounts themselves.
        own = {str(directory.passwd), str(directory.group)}
        plan.binds[:] = [bind for bind in plan.binds if bind.source not in own]

    async def adopt(self, plan: Plan, container: Container) -> None:
        """Thaws what a copy has left frozen. Raises: EngineUnavailableError, OSError."""
        await self._directories.make(plan.directory, plan.directory.thaw_layer)

    async def close(self, plan: Plan) -> None:
        """Raises: MountError, OSError, TimeoutError."""
        await self._directories.remove(plan.directory, plan.directory.remove_layer)

    def _start(self, plan: Plan, image: Image) -> Start | None:
        """What the layer begins with; None: nothing. Blocks. Raises: CapacityExhaustedError."""
        if plan.session.family.shares:  # the workspace is its parent's
            return None
        kept = self._workspaces.layer(plan.session.workspace)
        if not kept.exists():
            return None
        self._check_room(kept, plan.directory.path)
        # The image was examined in the same way before any session could have it.
        places = (*DIRECTORIES, *image.volumes, *(bind.target for bind in plan.binds))
        usual = {*FILES, *ABSENT}
        directories = [each for each in with_parents(places) if each not in usual]
        return Start(kept, directories, FILES, ABSENT)

    def _check_room(self, kept: Path, directory: Path) -> None:
        if free_bytes(directory) - kept.stat().st_blocks * _SECTOR < self._reserve:
            raise CapacityExhaustedError(
                "the host is short of disk space for a writable layer", retry_after=_RETRY_SECONDS
            )
