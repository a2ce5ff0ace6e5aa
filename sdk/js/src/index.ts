/** The JavaScript client of Paddock: sandboxes for AI agents, governed and recorded. */

export type * from "./generated/contract.js";
// The classes of these names hide the API's objects, which have other names here.
export type {
  Archives as ArchivesPage,
  Keys as KeysPage,
  Session as SessionInfo,
  Shell as ShellInfo,
  Terminal as TerminalInfo,
  Volumes as VolumesPage,
} from "./generated/contract.js";
export type { Answer, Arguments, Body, EventOf, Name, Query } from "./api.js";
export { Approvals } from "./approvals.js";
export { Archives } from "./archives.js";
export { Audit } from "./audit.js";
export { type Content, printed } from "./bytes.js";
export { CodeContexts, type CodeEvent, type CodeTerms } from "./code.js";
export {
  type CommandLine,
  type ExecEvent,
  type ExecTerms,
  Finished,
  type StreamTerms,
} from "./commands.js";
export { BreakGlass } from "./break-glass.js";
export { Consume } from "./consume.js";
export { Egress } from "./egress.js";
export * from "./errors.js";
export { Files, type Part, type Version, type WriteTerms } from "./files.js";
export { REMEDIES } from "./generated/remedies.js";
export { Hooks } from "./hooks.js";
export { Nodes } from "./nodes.js";
export { Owners } from "./owners.js";
export type { CallOptions } from "./http.js";
export { Keys } from "./keys.js";
export { type Frame, LiveTerminal } from "./live-terminal.js";
export { KeyMemory, SessionMemory } from "./memory.js";
export { NamedSnapshots } from "./named-snapshots.js";
export { type ClientOptions, Paddock } from "./paddock.js";
export { Pages } from "./pages.js";
export { Ports } from "./ports.js";
export { Processes } from "./processes.js";
export { Proposals } from "./proposals.js";
export { RunSocket } from "./run-socket.js";
export type { Messages, RunEvent, RunTerms } from "./runs.js";
export { Secrets, SessionSecrets } from "./secrets.js";
export { Session } from "./session.js";
export { Sessions, type SessionTerms } from "./sessions.js";
export { Shell, Shells } from "./shells.js";
export type { SpawnEvent } from "./spawns.js";
export { Terminal, Terminals } from "./terminals.js";
export { Turns } from "./turns.js";
export { Templates } from "./templates.js";
export { Users } from "./users.js";
export { Volumes } from "./volumes.js";
export { Watch } from "./watch.js";
