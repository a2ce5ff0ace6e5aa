"""Opens the floor that keeps the record, within the quotas of keys and the disk's room."""

from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from functools import partial

from orchestrator.cluster.open import ClusterFloor
from orchestrator.ground.errors import ClusterUnavailableError
from orchestrator.ground.open import DATABASE_FILE, GroundFloor
from orchestrator.host.node.resources import free_bytes
from orchestrator.record.audit.budgets import AgentEvents, Budgets
from orchestrator.record.audit.glass_accesses import GlassAccesses
from orchestrator.record.audit.ledger import Ledger
from orchestrator.record.audit.record_room import RecordRoom
from orchestrator.record.audit.recorder import Recorder
from orchestrator.record.audit.refusal_marks import RefusalMarks
from orchestrator.record.audit.stop_records import StopRecords
from orchestrator.record.audit.verifier import Verifier
from orchestrator.record.search_index.search_index import SearchIndex
from orchestrator.record.secrets.configured_secrets import ConfiguredSecrets
from orchestrator.record.secrets.proxy_secrets import ProxySecrets
from orchestrator.record.secrets.sealer import Sealer, own_sealer, shared_sealer
from orchestrator.record.secrets.shared_seal import check_seal
from orchestrator.record.secrets.shared_secrets import SharedSecrets
from orchestrator.rules.open import RulesFloor
from orchestrator.settings.settings import Settings
from orchestrator.state.end_requests import EndRequests


@dataclass(frozen=True, slots=True)
class RecordFloor:
    """`end_requests` ask for the ends of sessions; nothing else on this floor ends one.

    `shared_sealer` is for what a cluster shares.
    """

    ledger: Ledger
    search_index: SearchIndex
    verifier: Verifier
    room: RecordRoom
    recorder: Recorder
    stops: StopRecords
    accesses: GlassAccesses
    end_requests: EndRequests
    budgets: Budgets
    agent_events: AgentEvents
    sealer: Sealer
    shared_sealer: Sealer | None
    secrets: ProxySecrets


async def open_record(
    settings: Settings,
    ground: GroundFloor,
    rules: RulesFloor,
    cluster: ClusterFloor,
    configured: ConfiguredSecrets,
    closers: AsyncExitStack,
) -> RecordFloor:
    """Opens the ledger and what writes to it. Raises: StoreError, ConfigError."""
    database = ground.database
    ledger = Ledger(database)
    closers.push_async_callback(ledger.close)
    state_dir = settings.state_dir
    ledger_file = state_dir / DATABASE_FILE
    index = SearchIndex(state_dir / "search.db", ledger_file, ledger)
    closers.push_async_callback(index.close)
    index.start(ground.tasks)
    verifier = Verifier(database, ledger_file)
    closers.push_async_callback(verifier.close)
    room = RecordRoom(
        rules.keys,
        settings.key_limits,
        settings.min_free_disk_bytes,
        partial(free_bytes, state_dir),
    )
    await room.load(database)
    if cluster.lender is not None:
        borrowing = await room.borrow(cluster.lender, database)
        borrowing.start(ground.tasks)
        closers.push_async_callback(borrowing.close)
    recorder = Recorder(ledger, ground.metrics, room, RefusalMarks(database), rules.glass)
    closers.push_async_callback(recorder.close)
    stops = StopRecords()
    closers.push_async_callback(stops.close)
    accesses = GlassAccesses(rules.glass, rules.keys, recorder, stops)
    closers.callback(accesses.shut_down)
    # Sessions are opened after this floor, and serve its requests from then on.
    ends = EndRequests()
    closers.push_async_callback(ends.close)
    budgets = Budgets(recorder, stops, ground.metrics, ends)
    agent_events = AgentEvents(recorder, budgets)
    closers.push_async_callback(agent_events.close)
    sealer = own_sealer(state_dir)
    shared_seals = await _shared_sealer(settings, cluster)
    shared_secrets = None
    if cluster.shared is not None:
        shared_secrets = SharedSecrets(cluster.shared, database, shared_seals)
    secrets = ProxySecrets(database, recorder, configured, sealer, shared_secrets)
    await secrets.load()
    if shared_secrets is not None and cluster.following is not None:
        cluster.following.add(shared_secrets.following(secrets.changed))
    return RecordFloor(
        *(ledger, index, verifier, room, recorder, stops, accesses, ends),
        *(budgets, agent_events, sealer, shared_seals, secrets),
    )


async def _shared_sealer(settings: Settings, cluster: ClusterFloor) -> Sealer | None:
    """What seals the cluster's secrets; None: nothing does.

    Raises: ConfigError if the other nodes have another key.
    """
    if cluster.shared is None or settings.cluster is None:
        return None
    file = settings.cluster_secrets_key_file
    sealer = None if file is None else shared_sealer(file, settings.cluster)
    with suppress(ClusterUnavailableError):  # nothing is changed there with another key
        await check_seal(cluster.shared, sealer)
    return sealer
