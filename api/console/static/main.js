// The frame of all pages, and which page an address shows.

import { html, render, useEffect, useState } from "./vendor/preact.js";
import { credential, keepCredential } from "./api.js";
import { Live, useLive } from "./live.js";
import { SignIn } from "./pages/sign_in.js";
import { Overview } from "./pages/overview.js";
import { Session } from "./pages/session.js";
import { Approvals } from "./pages/approvals.js";
import { Audit } from "./pages/audit.js";
import { Policies } from "./pages/policies.js";
import { System } from "./pages/system.js";

const PAGES = [
  ["sessions", "Sessions"], ["approvals", "Approvals"], ["audit", "Audit"],
  ["policies", "Policies"], ["system", "System"],
];

/** The parts of the address behind `#/`, and its query. */
function address() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  return { parts: path.split("/").filter(Boolean).map(decodeURIComponent), query: new URLSearchParams(query) };
}

function useAddress() {
  const [now, setNow] = useState(address());
  useEffect(() => {
    const moved = () => { setNow(address()); document.querySelector("main")?.focus(); };
    addEventListener("hashchange", moved);
    return () => removeEventListener("hashchange", moved);
  }, []);
  return now;
}

function Page({ live, parts, query }) {
  const [page = "sessions", id, tab] = parts;
  if (page === "sessions" && id) return html`<${Session} key=${id} id=${id} tab=${tab} query=${query} />`;
  if (page === "sessions") return html`<${Overview} live=${live} />`;
  if (page === "approvals") return html`<${Approvals} live=${live} />`;
  if (page === "audit") return html`<${Audit} query=${query} />`;
  if (page === "policies") return html`<${Policies} />`;
  if (page === "system") return html`<${System} />`;
  return html`<p class="state">There is no such page. <a href="#/sessions">See the sessions</a>.</p>`;
}

const STATES = { loading: "connecting", live: "live", reconnecting: "reconnecting", over: "disconnected" };

function Connection({ live }) {
  useLive(live);
  return html`<span class="connection ${live.state}" role="status">${STATES[live.state]}</span>`;
}

function Navigation({ live, page }) {
  useLive(live);
  return html`<nav aria-label="Pages">${PAGES.map(([name, title]) => html`
    <a href="#/${name}" aria-current=${page === name ? "page" : undefined}>${title}${
      name === "approvals" && live.approvals ? html` <span class="count">${live.approvals}</span>` : ""}</a>`)}</nav>`;
}

function Frame({ given, onLeave }) {
  const { parts, query } = useAddress();
  const [live] = useState(() => new Live());
  const own = given.session;
  useEffect(() => {
    if (!own) live.start();
    return () => live.close();
  }, []);
  useEffect(() => { document.title = ["Paddock", ...parts].reverse().join(" · "); }, [parts.join("/")]);
  const leave = html`<button class="plain" onClick=${onLeave}>Sign out</button>`;
  if (own) {
    return html`<header><a class="brand" href="#/sessions/${encodeURIComponent(own)}">Paddock</a><span></span>${leave}</header>
      <main tabindex="-1"><${Session} id=${own} tab=${parts[2]} query=${query} /></main>`;
  }
  return html`<header><a class="brand" href="#/sessions">Paddock</a>
      <${Navigation} live=${live} page=${parts[0] ?? "sessions"} /><${Connection} live=${live} />${leave}</header>
    <main tabindex="-1"><${Page} live=${live} parts=${parts} query=${query} /></main>`;
}

function App() {
  const [given, setGiven] = useState(credential());
  const keep = (value) => { keepCredential(value); setGiven(value); };
  if (!given) return html`<${SignIn} onSignIn=${keep} />`;
  return html`<${Frame} given=${given} onLeave=${() => { location.hash = ""; keep(null); }} />`;
}

render(html`<${App} />`, document.body);
