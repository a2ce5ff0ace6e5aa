// Signs in with an API key, or with the handle of one session.

import { html, useState } from "../vendor/preact.js";
import { Problem, get, keepCredential, ofSession } from "../api.js";
import { Failure } from "../parts.js";
import { Issuers } from "./sign_in_elsewhere.js";

const UNKNOWN = "This key or handle is not known. The admin key is in admin.key in the state directory, or in PADDOCK_ADMIN_KEY; "
  + "`paddock keys create NAME` makes another.";

export function SignIn({ onSignIn, problem }) {
  const [token, setToken] = useState("");
  const [session, setSession] = useState("");
  const [error, setError] = useState(problem);
  const [busy, setBusy] = useState(false);
  const handle = token.startsWith("H-");

  async function submit(event) {
    event.preventDefault();
    setBusy(true);
    const given = { token: token.trim(), session: handle ? session.trim() : null };
    keepCredential(given); // for the call that tries it
    try {
      await get(handle ? ofSession(given.session) : "/api/sessions?limit=1");
      onSignIn(given);
    } catch (failed) {
      keepCredential(null);
      setError(failed instanceof Problem && failed.status === 401 ? new Error(UNKNOWN) : failed);
      setBusy(false);
    }
  }

  return html`<main class="sign-in"><form onSubmit=${submit}>
    <h1><img src="/console/icon.svg" alt="" width="36" height="36" /> Paddock</h1>
    <p class="hint">Governed sandboxes for AI agents</p>
    <label>API key, or a session's handle
      <input type="password" autocomplete="off" required autofocus value=${token}
        onInput=${(event) => setToken(event.target.value)} /></label>
    ${handle && html`<label>Id of the handle's session
      <input required autocomplete="off" value=${session} onInput=${(event) => setSession(event.target.value)} /></label>`}
    <button class="primary" disabled=${busy}>${busy ? "Signing in" : "Sign in"}</button>
    ${error && html`<${Failure} error=${error} />`}
    <${Issuers} />
    <p class="hint">It is kept for this tab only, and sent to this address only.</p>
  </form></main>`;
}
