// Searches the records of all sessions.

import { html, useState } from "../vendor/preact.js";
import { get, withQuery } from "../api.js";
import { Choice, DECISIONS, Empty, Failure } from "../parts.js";
import { Event } from "./session_activity.js";

const FIELDS = [["text", "Text"], ["session", "Session"], ["operation", "Operation"], ["rule", "Rule"], ["actor", "Actor"], ["owner", "Owner"]];
const PAGE = 100;

/** Saves the events as one JSON text per line. */
function save(events) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob(events.map((event) => `${JSON.stringify(event)}\n`), { type: "application/jsonl" }));
  link.download = "audit.jsonl";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

const moment = (local) => (local ? new Date(local).toISOString() : "");

export function Audit({ query }) {
  const [asked, setAsked] = useState(Object.fromEntries(query));
  const [found, setFound] = useState(null);
  const [error, setError] = useState(null);
  const change = (name) => (event) => setAsked({ ...asked, [name]: event.target.value });

  async function search(more) {
    setError(null);
    const { from, to, ...rest } = asked;
    try {
      const page = await get(withQuery("/api/audit", { ...rest, from: moment(from), to: moment(to), limit: PAGE, cursor: more ? found.next : "" }));
      setFound({ ...page, items: more ? [...found.items, ...page.items] : page.items });
      history.replaceState(null, "", withQuery("#/audit", asked));
    } catch (failed) { setError(failed); }
  }

  return html`<h1>Audit</h1>
    <form class="filters" onSubmit=${(event) => { event.preventDefault(); search(false); }}>
      ${FIELDS.map(([name, title]) => html`<label>${title} <input value=${asked[name] ?? ""} onInput=${change(name)} /></label>`)}
      <${Choice} label="Decision" value=${asked.decision ?? ""} among=${DECISIONS} onChoose=${(decision) => setAsked({ ...asked, decision })} />
      <label>From <input type="datetime-local" value=${asked.from ?? ""} onInput=${change("from")} /></label>
      <label>To <input type="datetime-local" value=${asked.to ?? ""} onInput=${change("to")} /></label>
      <button class="primary">Search</button></form>
    ${error && html`<${Failure} error=${error} />`}
    ${found && html`<p class="actions"><span role="status">${found.items.length} events${found.next ? ", and there may be more" : ""}</span>
      ${found.items.length > 0 && html`<button onClick=${() => save(found.items)}>Save as JSON lines</button>`}</p>
      ${found.archived > 0 && html`<p class="hint">${found.archived} archived sessions were not searched.</p>`}
      ${found.items.length ? html`<ol class="timeline">${found.items.map((event) => html`<${Event} key=${event.id} event=${event} named />`)}</ol>`
        : html`<${Empty}>Nothing was found.<//>`}
      ${found.next && html`<p><button onClick=${() => search(true)}>Search on</button></p>`}`}
    ${!found && !error && html`<${Empty}>Say what to look for; without any condition, the latest events are shown.<//>`}`;
}
