// The ports of a sandbox that are open to others, and links to them.

import { html, useState } from "../vendor/preact.js";
import { credential, get, ofSession, request, send } from "../api.js";
import { Failure, Loading, Table, Time, useLoaded } from "../parts.js";
import { number } from "../format.js";

const HOURS = [["3600", "1 hour"], ["28800", "8 hours"], ["86400", "1 day"], ["604800", "7 days"]];

function Open({ onOpen }) {
  const [port, setPort] = useState("");
  const [for_, setFor] = useState(HOURS[0][0]);
  const open = (event) => { event.preventDefault(); if (port) onOpen({ port: Number(port), seconds: Number(for_) }); };
  return html`<form class="filters" onSubmit=${open}>
    <label>Port <input type="number" min="1" max="65535" required value=${port} placeholder="8000" onInput=${(event) => setPort(event.target.value)} /></label>
    <label>For <select value=${for_} onChange=${(event) => setFor(event.target.value)}>
      ${HOURS.map(([seconds, title]) => html`<option key=${seconds} value=${seconds}>${title}</option>`)}</select></label>
    <span class="actions"><button class="primary">Open</button></span></form>`;
}

const isAddress = (href) => typeof href === "string" && href.startsWith("http");

/** Links work without a key, so only the caller that has opened the port sees them. */
const Link = ({ href, title }) => isAddress(href) && html`<a href=${href} target="_blank" rel="noopener noreferrer">${title}</a>
  <button aria-label=${`Copy: ${title}`} onClick=${() => navigator.clipboard.writeText(href)}>Copy</button> `;

const Links = ({ opened }) => html`<${Link} href=${opened.host_link} title="open at its own host" /><${Link} href=${opened.link} title="open at a path" />`;

export function Ports({ session }) {
  const path = (...rest) => ofSession(session.id, "ports", ...rest);
  const [list, error, reload] = useLoaded(() => get(path()), [session.id, session.telemetry.events_emitted]);
  const [links, setLinks] = useState({});
  const [failed, setFailed] = useState(null);
  const act = async (work) => {
    setFailed(null);
    try { await work(); } catch (problem) { setFailed(problem); }
    reload();
  };
  const open = (body) => act(async () => {
    const opened = await send("POST", path(), body);
    setLinks((now) => ({ ...now, [opened.port]: opened }));
  });
  const columns = [
    { name: "Port", num: true, key: (port) => port.port, show: (port) => port.port },
    { name: "Link", show: (port) => (links[port.port] ? html`<${Links} opened=${links[port.port]} />` : html`<span class="hint">open it again for a link</span>`) },
    { name: "Opened by", key: (port) => port.opened_by, show: (port) => port.opened_by },
    { name: "Until", key: (port) => port.expires_at, show: (port) => html`<${Time} at=${port.expires_at} />` },
    { name: "Requests", num: true, key: (port) => port.requests, show: (port) => number(port.requests) },
    { name: "", show: (port) => !credential().session && html`<button onClick=${() => act(() => request("DELETE", path(String(port.port))))}>Close</button>` },
  ];
  return html`${(failed || error) && html`<${Failure} error=${failed ?? error} />`}
    ${list ? html`<${Table} label="ports" columns=${columns} rows=${list.items} of=${(port) => port.port} empty="No port is open." />` : !error && html`<${Loading} what="ports" />`}
    ${!credential().session && session.status === "active" && html`<${Open} onOpen=${open} />`}`;
}
