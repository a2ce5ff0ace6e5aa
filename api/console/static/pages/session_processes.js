// The commands of a session with their output, and the processes of its sandbox.

import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { get, ofSession, send, streamed } from "../api.js";
import { Badge, Bar, Empty, Failure, Loading, Raw, Table, Time, useLoaded } from "../parts.js";
import { bytes, number, percent, seconds, words } from "../format.js";

// The page keeps the end of a long output.
const MOST_OUTPUT = 200_000;

const PROCESSES = [
  { name: "PID", num: true, key: (process) => process.pid, show: (process) => process.pid },
  { name: "Words", key: (process) => words(process.argv), show: (process) => html`<code><${Raw} text=${words(process.argv) || process.name} /></code>` },
  { name: "State", key: (process) => process.state, show: (process) => process.state },
  { name: "CPU", num: true, key: (process) => process.cpu_percent, show: (process) => percent(process.cpu_percent) },
  { name: "CPU time", num: true, key: (process) => process.cpu_seconds, show: (process) => seconds(process.cpu_seconds) },
  { name: "Memory", num: true, key: (process) => process.memory_bytes, show: (process) => bytes(process.memory_bytes) },
];

function end(command) {
  if (!command.exit) return html`<${Badge} kind="good">running<//>`;
  const { exit_code: code, reason } = command.exit;
  return html`<${Badge} kind=${code === 0 ? "" : "warn"}>${code == null ? "ended" : `exit ${code}`}<//> ${reason ?? ""}`;
}

function Output({ session, command }) {
  const [text, setText] = useState("");
  const [error, setError] = useState(null);
  const box = useRef(null);
  useEffect(() => {
    const stop = new AbortController();
    setText("");
    read(session, command, stop.signal, (more) => setText((before) => (before + more).slice(-MOST_OUTPUT)))
      .catch((failed) => !stop.signal.aborted && setError(failed));
    return () => stop.abort();
  }, [command]);
  useEffect(() => { if (box.current) box.current.scrollTop = box.current.scrollHeight; }, [text]);
  if (error) return html`<${Failure} error=${error} />`;
  return html`<pre ref=${box} tabindex="0" aria-label="output" aria-live="off">${text ? html`<${Raw} text=${text} />` : "No output yet."}</pre>`;
}

async function read(session, command, signal, onText) {
  for await (const { name, data } of streamed(ofSession(session, "processes", command), signal)) {
    if (name === "stdout" || name === "stderr") onText(data.text);
  }
}

export function Processes({ session }) {
  const running = session.commands.map((command) => command.command_id).join();
  const [list, error, reload] = useLoaded(() => get(ofSession(session.id, "processes")), [session.id, running]);
  const [open, setOpen] = useState(null);
  const stop = (command) => send("POST", ofSession(session.id, "processes", command.command_id, "signal"), { signal: "TERM" }).then(reload, reload);
  const columns = [
    { name: "Command", key: (command) => words(command.argv), show: (command) => html`<code><${Raw} text=${words(command.argv)} /></code>` },
    { name: "State", key: (command) => command.status, show: end },
    { name: "Started", key: (command) => command.started_at, show: (command) => html`<${Time} at=${command.started_at} />` },
    { name: "Took", num: true, key: (command) => command.exit?.duration_ms, show: (command) => (command.exit ? seconds(command.exit.duration_ms / 1000) : "–") },
    { name: "", show: (command) => html`<span class="actions">
      ${command.background && html`<button aria-expanded=${open === command.command_id} onClick=${() => setOpen(open === command.command_id ? null : command.command_id)}>Output</button>`}
      ${!command.exit && html`<button class="danger" onClick=${() => stop(command)}>Stop</button>`}</span>` },
  ];
  const { usage, disk, limits } = session;
  return html`<div class="two"><section><h2>Usage</h2>
      ${usage ? html`<${Bar} label="CPU" used=${usage.cpu_percent} limit=${limits.cpus * 100} show=${percent} />
        <${Bar} label="Memory" used=${usage.memory_bytes} limit=${limits.memory_bytes} show=${bytes} />
        <${Bar} label="Processes" used=${usage.pids} limit=${limits.pids} show=${number} />` : html`<${Empty}>There is no sandbox now.<//>`}
      ${disk && html`<${Bar} label="Workspace" used=${disk.used_bytes} limit=${disk.limit_bytes} show=${bytes} />`}</section>
    <section><h2>Processes of the sandbox</h2>
      <${Table} label="processes" columns=${PROCESSES} rows=${session.processes ?? []} of=${(process) => process.host_pid} empty="None." /></section></div>
    <h2>Commands</h2>
    ${error && html`<${Failure} error=${error} again=${reload} />`}
    ${list ? html`<${Table} label="commands" columns=${columns} rows=${list.items} of=${(command) => command.command_id}
      empty="No command was run." />` : !error && html`<${Loading} what="commands" />`}
    ${open && html`<h2>Output of <code>${open}</code></h2><${Output} session=${session.id} command=${open} />`}`;
}
