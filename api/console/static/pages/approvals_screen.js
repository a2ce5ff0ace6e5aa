// What the terminal of an approval shows now, as text.

import { html, useEffect, useRef } from "../vendor/preact.js";
import { ofSession, request } from "../api.js";
import { Raw, useLoaded } from "../parts.js";

const MOST = 2000;
// Sequences that colour text, move the cursor or set a title; they are left out of the text.
const SEQUENCES = /\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[ -/]*[0-~])/g;

/** The entry of a recording's line, or nothing of a line that is still being written. */
function entry(line) {
  try { return [JSON.parse(line)]; } catch { return []; }
}

/** The end of what a recording (asciicast v2) shows, without what only a terminal obeys. */
export function shown(recording) {
  const printed = recording.trimEnd().split("\n").slice(1).flatMap(entry)
    .filter(([, kind]) => kind === "o").map(([, , text]) => text).join("");
  return printed.replace(SEQUENCES, "").replaceAll("\r\n", "\n").replaceAll("\r", "\n").slice(-MOST);
}

/** A tool whose output is not kept has no recording, but a transcript that says what was sent. */
async function read(session, terminal) {
  const text = async (what) => (await request("GET", ofSession(session, "ptys", terminal, what))).text();
  try {
    return shown(await text("recording"));
  } catch (error) {
    if (!error.status) throw error;
    return (await text("transcript")).slice(-MOST);
  }
}

/** Read again after each event of the session. */
export function Screen({ approval, newest }) {
  const { session_id, terminal_id } = approval;
  const seen = newest?.session_id === session_id ? newest.id : null;
  const [text, error] = useLoaded(() => read(session_id, terminal_id), [session_id, terminal_id, seen]);
  const box = useRef(null);
  useEffect(() => { if (box.current) box.current.scrollTop = box.current.scrollHeight; }, [text]);
  if (error && text === undefined) return html`<p class="hint">What the terminal shows can't be read: <${Raw} text=${error.message} /></p>`;
  if (!text) return null;
  return html`<figure><figcaption>The terminal now</figcaption>
    <pre class="terminal-now" ref=${box} tabindex="0" aria-label="what the terminal shows"><${Raw} text=${text} /></pre></figure>`;
}
