// A session's way out: its rules, what was denied, and what it has used.

import { html, useState } from "../vendor/preact.js";
import { credential, get, ofSession, send } from "../api.js";
import { Badge, Empty, Failure, Loading, Raw, Table, Time, useLoaded } from "../parts.js";
import { bytes, number } from "../format.js";

const FROM = { level: "the level", only: "the session's narrowing", also: "an admin's addition" };

/** A rule without what it leaves open, as requests have it. */
const given = (rule) => Object.fromEntries(Object.entries(rule).filter(([, value]) => value && value.length !== 0));

/** All rules in one list, as `{from, decision, rule}`. */
const rulesOf = ({ level, only, also }) => Object.entries({ level, only, also }).flatMap(([from, rules]) =>
  ["allow", "deny"].flatMap((decision) => (rules[decision] ?? []).map((rule) => ({ from, decision, rule }))));

/** The body that removes one of the session's own rules. */
export function without(egress, { from, decision, rule }) {
  const kept = (rules, side) => rules?.filter((each) => side !== decision || each !== rule).map(given) ?? null;
  const left = { allow: kept(egress[from].allow, "allow"), deny: kept(egress[from].deny, "deny") };
  return { [from]: left, revision: egress.revision };
}

const details = (rule) => [
  rule.ports.length ? `ports ${rule.ports.join(", ")}` : "any port", rule.methods.join(", "), rule.paths.join(", "),
  rule.programs.length ? `by ${rule.programs.join(", ")}` : "", rule.inspect ? "inspected" : "", rule.upgrade ? "upgraded to TLS" : "",
].filter(Boolean).join(" · ");

function Rules({ egress, onRemove }) {
  const columns = [
    { name: "Decision", key: (row) => row.decision, show: (row) => html`<${Badge} kind=${row.decision === "allow" ? "good" : "bad"}>${row.decision}<//>` },
    { name: "Host", key: (row) => row.rule.host ?? row.rule.cidr, show: (row) => html`<code><${Raw} text=${row.rule.host ?? row.rule.cidr} /></code>` },
    { name: "What", key: (row) => details(row.rule), show: (row) => html`<${Raw} text=${details(row.rule)} />` },
    { name: "From", key: (row) => row.from, show: (row) => FROM[row.from] },
    { name: "", show: (row) => row.from !== "level" && onRemove && html`<button onClick=${() => onRemove(row)}>Remove</button>` },
  ];
  return html`<${Table} label="rules" columns=${columns} rows=${rulesOf(egress)} of=${(row) => JSON.stringify(row)}
    empty="No rule allows anything: every request is denied." />
    ${egress.only.allow && html`<p class="hint">The session's narrowing lists what is allowed: nothing else is, whatever the level allows.</p>`}`;
}

function Drafts({ drafts, onAllow, onDeny }) {
  const columns = [
    { name: "Host", key: (draft) => draft.host, show: (draft) => html`<code><${Raw} text=${`${draft.host}:${draft.port}`} /></code>` },
    { name: "Request", key: (draft) => draft.method, show: (draft) => html`${draft.method} <${Raw} text=${draft.path ?? ""} />
      ${draft.program && html` <span class="hint">by <${Raw} text=${draft.program} /></span>`}` },
    { name: "Times", num: true, key: (draft) => draft.count, show: (draft) => number(draft.count) },
    { name: "Last", key: (draft) => draft.last_seen, show: (draft) => html`<${Time} at=${draft.last_seen} />` },
    { name: "Why", key: (draft) => draft.rule, show: (draft) => html`<span title=${draft.reason}><code>${draft.rule}</code></span>` },
    { name: "", show: (draft) => onAllow && html`<span class="actions">${draft.proposal
      ? html`<button class="primary" onClick=${() => onAllow(draft)}>Allow</button> <button onClick=${() => onDeny(draft)}>Deny</button>`
      : html`<span class="hint">no rule can allow it</span>`}</span>` },
  ];
  return html`<${Table} label="denied requests" columns=${columns} rows=${drafts.items} of=${(draft) => draft.number} empty="Nothing was denied." />
    ${drafts.others > 0 && html`<p class="hint">${number(drafts.others)} further requests are not listed.</p>`}`;
}

function NewRule({ onAdd }) {
  const [host, setHost] = useState("");
  const [ports, setPorts] = useState("");
  const add = (decision) => (event) => {
    event.preventDefault();
    const rule = { [/^[\d.:a-f]+\/\d+$/i.test(host) ? "cidr" : "host"]: host.trim() };
    if (ports.trim()) rule.ports = ports.split(/[\s,]+/).filter(Boolean).map(Number);
    if (host.trim()) onAdd({ [decision]: [rule] }).then((ok) => { if (ok) { setHost(""); setPorts(""); } });
  };
  return html`<form class="filters" onSubmit=${add("allow")}>
    <label>Host or network <input value=${host} placeholder="pypi.org, *.example.org, 192.0.2.0/24" onInput=${(event) => setHost(event.target.value)} /></label>
    <label>Ports <input value=${ports} placeholder="80, 443" inputmode="numeric" onInput=${(event) => setPorts(event.target.value)} /></label>
    <span class="actions"><button class="primary">Allow</button><button type="button" onClick=${add("deny")}>Deny</button></span></form>`;
}

function Used({ used, day }) {
  const rows = [["allowed", number(used.allowed)], ["denied", number(used.denied)], ["sent", bytes(used.sent)],
    ["received", bytes(used.received)], ["open now", number(used.connections)],
    ["the key, today", `${bytes(day.bytes_today)}${day.max_bytes_per_day ? ` of ${bytes(day.max_bytes_per_day)}` : ""}`]];
  return html`<p class="facts hint">${rows.map(([of, value]) => html`<span key=${of}>${of} <b>${value}</b></span>`)}</p>`;
}

const ELSE = {
  none: "This level has no network: nothing outside the sandbox can be reached.",
  open: "This level's network is open: rules of the way out do not apply to it.",
};

export function Egress({ session }) {
  const path = (...rest) => ofSession(session.id, "egress", ...rest);
  const newest = session.telemetry.events_emitted;
  const [found, error, reload] = useLoaded(async () => {
    const [egress, drafts] = await Promise.all([get(path()), get(path("drafts"))]);
    return { egress, drafts };
  }, [session.id, session.permission_level, newest]);
  const [failed, setFailed] = useState(null);
  const change = async (method, where, body) => {
    setFailed(null);
    try { await send(method, where, body); } catch (problem) { setFailed(problem); return false; }
    reload();
    return true;
  };
  if (!found) return error ? html`<${Failure} error=${error} again=${reload} />` : html`<${Loading} what="the way out" />`;
  const { egress, drafts } = found;
  if (ELSE[egress.network]) return html`<${Empty}>${ELSE[egress.network]}<//>`;
  const may = !credential().session && ["active", "paused"].includes(session.status);
  const add = (body) => change("POST", path("rules"), body);
  return html`<${Used} used=${egress.used} day=${egress.key} />
    ${failed && html`<${Failure} error=${failed} />`}
    <${Rules} egress=${egress} onRemove=${may && ((row) => change("PUT", path(), without(egress, row)))} />
    ${may && html`<${NewRule} onAdd=${add} />`}
    <h3>Denied requests</h3>
    <${Drafts} drafts=${drafts} onAllow=${may && ((draft) => add({ drafts: [draft.number] }))}
      onDeny=${may && ((draft) => add({ deny: [given(draft.proposal)] }))} />`;
}
