// What needs a level that permits any command, and the page of a level that does not.

import { html } from "../vendor/preact.js";
import { credential, get, ofSession, send } from "../api.js";
import { Failure, Loading, Raw, useLoaded } from "../parts.js";

/** What the control plane says about a command at the session's level. */
function Said({ session, argv }) {
  const [answer, error] = useLoaded(() => send("POST", "/api/policies/explain", { session: session.id, argv }), [session.id, session.permission_level]);
  if (error) return html`<${Failure} error=${error} />`;
  return answer && html`<p class="hint"><${Raw} text=${answer.message} /></p>`;
}

/**
 * Its children, where the session's level permits any command; elsewhere why `what` is missing. `argv` is a command
 * whose refusal explains it. A handle may not read levels: the control plane refuses what it may not do.
 */
export function AnyCommand({ session, what, why, argv, children }) {
  const own = credential().session;
  const [levels, error, reload] = useLoaded(async () => (own ? [] : (await get("/api/policies")).items), [session.id]);
  if (error) return html`<${Failure} error=${error} again=${reload} />`;
  if (!levels) return html`<${Loading} what="the level" />`;
  const level = levels.find(({ name }) => name === session.permission_level);
  if (!level?.commands) return children;
  return html`<section class="card no-shell"><h2>The level ${level.name} has no ${what}</h2>
    <p>${why}</p>${argv && html`<${Said} session=${session} argv=${argv} />`}
    <p class="actions"><a class="button" href="#/sessions/${encodeURIComponent(session.id)}/level">Raise the level</a>
      ${argv && html`<span class="hint">or run single commands with <code>paddock exec</code>.</span>`}</p></section>`;
}

export const A_SHELL = { what: "shell", why: "A shell could run any program, and this level permits only some.", argv: ["sh"] };
