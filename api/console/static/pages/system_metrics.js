// The instance's metrics as plots: the host's samples, and the values of /metrics while the page is open.

import { html, useEffect, useState } from "../vendor/preact.js";
import { get, request } from "../api.js";
import { Failure, Loading } from "../parts.js";
import { Plot } from "../plots.js";
import { bytes, number, percent, seconds } from "../format.js";

const EVERY_MS = 5000;
const SOON_MS = 1000;
const MOST_POINTS = 360;

/** By name, the samples of Prometheus' text format as `{labels, value}`. */
export function parsed(text) {
  const found = new Map();
  for (const line of text.split("\n")) {
    const match = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$/.exec(line);
    if (!match) continue;
    const labels = Object.fromEntries([...(match[2] ?? "").matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)].map(([, name, value]) => [name, value]));
    found.set(match[1], [...(found.get(match[1]) ?? []), { labels, value: Number(match[3]) }]);
  }
  return found;
}

const sum = (samples) => (samples ?? []).reduce((total, { value }) => total + value, 0);
const by = (samples, name, value) => (samples ?? []).filter(({ labels }) => labels[name] === value);

/** What is plotted of one reading; counters are totals. */
function reading(text, at) {
  const all = parsed(text);
  const requests = all.get("paddock_http_requests_total");
  return {
    at,
    sessions: sum(by(all.get("paddock_sessions"), "status", "active")),
    commands: sum(all.get("paddock_commands_running")),
    requests: sum(requests),
    failed: sum((requests ?? []).filter(({ labels }) => labels.status >= "500")),
    requestTime: sum(all.get("paddock_http_request_seconds_sum")), requestCount: sum(all.get("paddock_http_request_seconds_count")),
    startTime: sum(all.get("paddock_command_start_seconds_sum")), startCount: sum(all.get("paddock_command_start_seconds_count")),
    events: sum(all.get("paddock_audit_events_total")), denials: sum(all.get("paddock_denials_total")),
    memory: sum(all.get("process_resident_memory_bytes")),
    build: all.get("paddock_build_info")?.[0]?.labels,
  };
}

const change = (now, before, name) => Math.max(0, now[name] - before[name]);
const perSecond = (name) => (now, before) => change(now, before, name) / (now.at - before.at);
const mean = (time, count) => (now, before) => (change(now, before, count) ? change(now, before, time) / change(now, before, count) : null);
const rate = (value) => `${value < 10 ? value.toFixed(1) : number(Math.round(value))}/s`;
const level = (name) => (now) => now[name];

const PLOTS = [
  { title: "Sessions and commands", most: 1, show: (value) => number(Math.round(value)), of: { "active sessions": level("sessions"), "running commands": level("commands") } },
  { title: "Requests", most: 1, show: rate, of: { answered: perSecond("requests"), failed: perSecond("failed") } },
  { title: "Mean time", most: 0.01, show: seconds, of: { "to answer a request": mean("requestTime", "requestCount"), "to start a command": mean("startTime", "startCount") } },
  { title: "Record", most: 1, show: rate, of: { events: perSecond("events"), denials: perSecond("denials") } },
  { title: "Memory of the control plane", binary: true, show: bytes, of: { resident: level("memory") } },
];

function useReadings() {
  const [readings, setReadings] = useState([]);
  const [error, setError] = useState(null);
  useEffect(() => {
    const stop = new AbortController();
    const read = async () => {
      if (document.visibilityState !== "visible") return;
      try {
        const text = await (await request("GET", "/metrics", { signal: stop.signal })).text();
        setReadings((before) => [...before, reading(text, Date.now() / 1000)].slice(-MOST_POINTS));
        setError(null);
      } catch (failed) { if (!stop.signal.aborted) setError(failed); }
    };
    read();
    // Changes are plotted, so there is nothing to see before the second reading.
    const soon = setTimeout(read, SOON_MS);
    const timer = setInterval(read, EVERY_MS);
    return () => { stop.abort(); clearTimeout(soon); clearInterval(timer); };
  }, []);
  return [readings, error];
}

function Host({ usage }) {
  const { host, interval, at: latest } = usage;
  if (!host?.cpu_percent.length) return null;
  const times = host.cpu_percent.map((_, at, all) => latest - (all.length - 1 - at) * interval);
  return html`<${Plot} title="Processors of the host, ten minutes" times=${times} series=${["used"]} values=${[host.cpu_percent]} show=${percent} most=${100} />
    <${Plot} title="Memory of the host, ten minutes" times=${times} series=${["used"]} values=${[host.memory_used]} show=${bytes} most=${host.memory_bytes} binary />`;
}

export function Metrics({ usage }) {
  const [readings, error] = useReadings();
  const { build } = readings.at(-1) ?? {};
  // The first reading has nothing before it, so changes begin with the second.
  const points = readings.slice(1).map((now, at) => [now, readings[at]]);
  return html`<section aria-label="metrics"><div class="head"><h2>Metrics</h2>
      ${build && html`<span class="hint">Paddock ${build.version}, Python ${build.python}</span>`}</div>
    ${error && html`<${Failure} error=${error} />`}
    <div class="plots"><${Host} usage=${usage} />
      ${points.length ? PLOTS.map(({ of, ...plot }) => html`<${Plot} key=${plot.title} ...${plot} series=${Object.keys(of)}
        times=${points.map(([now]) => now.at)} values=${Object.values(of).map((value) => points.map((pair) => value(...pair)))} />`)
        : !error && html`<${Loading} what="metrics: the first two readings" />`}</div>
    <p class="hint">Read from <code>/metrics</code> every ${EVERY_MS / 1000} seconds since the page was opened. For longer, have Prometheus read it.</p></section>`;
}
