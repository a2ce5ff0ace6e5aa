"""Opens the floor of sandboxes: their images, their ways out and in, and what they share."""

import logging
from contextlib import AsyncExitStack
from dataclasses import dataclass

from orchestrator.cluster.fence import seconds_open
from orchestrator.cluster.open import ClusterFloor
from orchestrator.ground.open import GroundFloor
from orchestrator.host.link.vouching import Vouching
from orchestrator.host.node.boot import boottime
from orchestrator.host.open import HostFloor
from orchestrator.record.open import RecordFloor
from orchestrator.rules.access.admin_key import generated_key
from orchestrator.rules.open import RulesFloor
from orchestrator.sandbox.egress.egress_part import EgressPart
from orchestrator.sandbox.egress.interception import Interception
from orchestrator.sandbox.egress.key_bytes import KeyBytes
from orchestrator.sandbox.egress.resolver import CheckedResolver, Resolver
from orchestrator.sandbox.egress.session_egress import SessionEgress
from orchestrator.sandbox.images.checked_images import CheckedImages
from orchestrator.sandbox.named_snapshots.named_snapshots import NamedSnapshots
from orchestrator.sandbox.packs.firewall import ContextFirewall
from orchestrator.sandbox.ports.limits import PORT_LIMITS
from orchestrator.sandbox.ports.open_ports import Ports
from orchestrator.sandbox.ports.tunnels import PortsPart
from orchestrator.sandbox.sandboxes.allowed_images import AllowedImages
from orchestrator.sandbox.sandboxes.image_builds import ImageBuilds
from orchestrator.sandbox.sandboxes.level_images import LevelImages
from orchestrator.sandbox.sandboxes.listed_images import ListedImages
from orchestrator.sandbox.sandboxes.session_sandboxes import Sandboxes
from orchestrator.sandbox.sandboxes.subscribers import Subscribers
from orchestrator.sandbox.sandboxes.warm_pool import WarmPool
from orchestrator.sandbox.sandboxes.workspaces import Workspaces
from orchestrator.sandbox.volumes.volumes import Volumes
from orchestrator.settings.settings import Settings
from orchestrator.state.shapes import cold_levels

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SandboxFloor:
    """What upper floors use. Sessions, which are opened later, start and close what runs here.

    `listed_images` is the operator's list, `images` says what the engine has of it, and
    `level_images` which of the levels' default images are there.
    """

    listed_images: ListedImages
    images: AllowedImages
    level_images: LevelImages
    firewall: ContextFirewall
    key_bytes: KeyBytes
    way_out: EgressPart
    egress: SessionEgress
    ports: Ports
    workspaces: Workspaces
    volumes: Volumes
    named_snapshots: NamedSnapshots
    subscribers: Subscribers
    sandboxes: Sandboxes
    pool: WarmPool


async def open_sandboxes(
    settings: Settings,
    ground: GroundFloor,
    host: HostFloor,
    rules: RulesFloor,
    cluster: ClusterFloor,
    record: RecordFloor,
    listed: ListedImages,
    resolver: Resolver | None,
    closers: AsyncExitStack,
) -> SandboxFloor:
    """Opens what sandboxes need; `resolver` None: this host's name servers.

    Raises: ConfigError, StoreError.
    """
    for name in cold_levels(settings.warm_least, rules.levels):
        log.warning("warm_least: sandboxes of level %s can't be started ahead", name)
    for name in listed.of_levels.keys() - rules.levels.keys():
        log.warning("level_images: there is no level %s", name)
    builds = ImageBuilds(settings.docker_host)
    closers.push_async_callback(builds.close)
    checked = CheckedImages(settings.state_dir)
    images = AllowedImages(host.engine, listed, checked, builds)
    closers.push_async_callback(images.close)
    level_images = LevelImages(host.engine, listed.of_levels, builds, checked)
    key_bytes = KeyBytes(rules.keys, settings.key_limits)
    await key_bytes.load(ground.database)
    if cluster.lender is not None:
        borrowing = key_bytes.borrow(cluster.lender)
        borrowing.start(ground.tasks)
        closers.push_async_callback(borrowing.close)
    way_out = EgressPart(
        host.node,
        record.recorder,
        record.budgets,
        resolver or CheckedResolver(),
        Interception(settings.state_dir, settings.ca_file),
        record.secrets,
        key_bytes,
    )
    way_in = PortsPart(host.node, PORT_LIMITS)
    ports = Ports(
        ground.database,
        record.recorder,
        record.stops,
        rules.keys,
        rules.glass,
        generated_key(settings.state_dir / "preview.key"),
        way_in,
        PORT_LIMITS,
    )
    storage, uids = host.node.storage, host.uids
    workspaces = Workspaces(settings, ground.database, storage, uids, cluster.places)
    volumes = Volumes(ground.database, record.recorder, storage, uids, workspaces, cluster)
    closers.push_async_callback(volumes.close)
    named = NamedSnapshots(
        settings, ground.database, record.recorder, host.node.storage, cluster.names
    )
    closers.push_async_callback(named.close)
    subscribers = Subscribers(record.agent_events.record)
    sandboxes = Sandboxes(
        settings,
        host.node,
        host.runtimes,
        record.ledger,
        workspaces,
        volumes,
        subscribers,
        (way_out, way_in),
        ground.metrics,
        Vouching(lambda: seconds_open(cluster.membership.renewed_at, boottime())),
    )
    closers.push_async_callback(sandboxes.agents.close)
    return SandboxFloor(
        listed,
        images,
        level_images,
        ContextFirewall(record.recorder, record.end_requests),
        key_bytes,
        way_out,
        SessionEgress(record.recorder, record.stops),
        ports,
        workspaces,
        volumes,
        named,
        subscribers,
        sandboxes,
        sandboxes.pool,
    )
