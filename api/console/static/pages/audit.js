// Searches the records of all sessions, and saves what was found.

import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { get, withQuery } from "../api.js";
import { Choice, DECISIONS, Empty, Failure } from "../parts.js";
import { number } from "../format.js";
import { save } from "./downloads.js";
import { Event } from "./session_event.js";

const FIELDS = [
  ["text", "Text", "anything in the event"], ["session", "Session", "id"], ["operation", "Operation", "command.start"],
  ["rule", "Rule", "command-allowlist"], ["actor", "Actor", "key or handle:…"], ["owner", "Owner", "key"],
];
const OPERATIONS = [
  "approval.decision", "approval.request", "budget.exceeded", "command.exec", "command.exit", "command.start", "egress.request",
  "file.delete", "file.read", "file.write", "hook.create", "hook.remove", "key.create", "key.revoke", "key.rotate", "policy.reloaded", "port.open", "pty.interaction", "pty.open",
  "read", "secret.set", "session.create", "session.settings", "session.suspended", "session.terminated",
];
const PAGE = 100;
const SAVED_PAGE = 1000;
const MOST_SAVED = 100_000;

const moment = (local) => (local ? new Date(local).toISOString() : "");
const conditions = ({ from, to, ...rest }) => ({ ...rest, from: moment(from), to: moment(to) });

/** Reads every page of what is asked for, and saves it as one JSON text per line. */
function Save({ asked }) {
  const [saved, setSaved] = useState(null);
  const [error, setError] = useState(null);
  const stop = useRef(null);
  useEffect(() => () => stop.current?.abort(), []);
  async function saveAll() {
    stop.current = new AbortController();
    setError(null);
    const parts = [];
    try {
      let cursor = "";
      do {
        setSaved(parts.length);
        const page = await get(withQuery("/api/audit", { ...conditions(asked), limit: SAVED_PAGE, cursor }), { signal: stop.current.signal });
        parts.push(...page.items.map((event) => `${JSON.stringify(event)}\n`));
        cursor = page.next;
      } while (cursor && parts.length < MOST_SAVED);
      save(new Blob(parts, { type: "application/jsonl" }), "audit.jsonl");
    } catch (failed) { if (failed.name !== "AbortError") setError(failed); }
    setSaved(null);
  }
  return html`${saved === null ? html`<button onClick=${saveAll}>Save all as JSON lines</button>`
    : html`<button onClick=${() => stop.current.abort()}>Stop at ${number(saved)} events</button>`}
    ${error && html`<${Failure} error=${error} again=${saveAll} />`}`;
}

function Form({ asked, onChange, onSearch, busy }) {
  const change = (name) => (event) => onChange({ ...asked, [name]: event.target.value });
  return html`<form class="card search" role="search" aria-label="audit" onSubmit=${(event) => { event.preventDefault(); onSearch(); }}>
    ${FIELDS.map(([name, title, example]) => html`<label key=${name}>${title} <input value=${asked[name] ?? ""} placeholder=${example}
      list=${name === "operation" ? "operations" : undefined} onInput=${change(name)} /></label>`)}
    <datalist id="operations">${OPERATIONS.map((each) => html`<option key=${each} value=${each}></option>`)}</datalist>
    <${Choice} label="Decision" value=${asked.decision ?? ""} among=${DECISIONS} onChoose=${(decision) => onChange({ ...asked, decision })} />
    <label>From <input type="datetime-local" value=${asked.from ?? ""} onInput=${change("from")} /></label>
    <label>To <input type="datetime-local" value=${asked.to ?? ""} onInput=${change("to")} /></label>
    <p class="actions"><button class="primary" disabled=${busy}>${busy ? "Searching" : "Search"}</button>
      <button type="button" onClick=${() => onChange({})}>Clear</button></p></form>`;
}

export function Audit({ query }) {
  const [asked, setAsked] = useState(Object.fromEntries(query));
  const [found, setFound] = useState(null);
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);

  async function search(more) {
    setError(null);
    setBusy(true);
    const wanted = more ? found.asked : asked;
    try {
      const page = await get(withQuery("/api/audit", { ...conditions(wanted), limit: PAGE, cursor: more ? found.next : "" }));
      setFound({ ...page, asked: wanted, items: more ? [...found.items, ...page.items] : page.items });
      if (!more) history.replaceState(null, "", withQuery("#/audit", wanted));
    } catch (failed) { setError(failed); }
    setBusy(false);
  }
  // The address has the conditions; without any, the latest events are shown.
  useEffect(() => { search(false); }, []);

  return html`<h1>Audit</h1><${Form} asked=${asked} onChange=${setAsked} onSearch=${() => search(false)} busy=${busy} />
    ${error && html`<${Failure} error=${error} again=${() => search(false)} />`}
    ${found && html`<p class="actions"><span role="status">${number(found.items.length)} ${found.items.length === 1 ? "event" : "events"}${found.next ? ", and there may be more" : ""}</span>
        ${found.items.length > 0 && html`<${Save} asked=${found.asked} />`}</p>
      ${found.archived > 0 && html`<p class="hint">${number(found.archived)} archived sessions were not searched. <code>paddock audit archives</code> lists them.</p>`}
      ${found.items.length ? html`<ol class="timeline">${found.items.map((event) => html`<${Event} key=${event.id} event=${event} named />`)}</ol>`
        : html`<${Empty}>Nothing was found${found.next ? " yet: search on." : ". Take away a condition."}<//>`}
      ${found.next && html`<p><button disabled=${busy} onClick=${() => search(true)}>Search on</button></p>`}`}`;
}
