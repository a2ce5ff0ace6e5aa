// Code cells: an editor, what came of the cells, and their contexts.

import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { Badge, Choice, Empty, Failure, Raw } from "../parts.js";
import { number, seconds } from "../format.js";
import { AnyCommand } from "./any_command.js";
import { Cells, unshown } from "./code_cells.js";
import { Text, Value } from "./code_value.js";

const LANGUAGES = ["python", "javascript", "bash"];
const KINDS = { ok: "good", error: "bad", refused: "bad", died: "bad", interrupted: "warn", timed_out: "warn" };

function Part({ part }) {
  if (part.kind === "value") return html`<${Value} value=${part.value} />`;
  if (part.kind === "error") {
    const { name, message, traceback } = part.error;
    return html`<div class="why"><p><b><${Raw} text=${name} /></b>: <${Raw} text=${message} /></p><${Text} label="traceback" text=${traceback} /></div>`;
  }
  return html`<${Text} label=${part.kind} kind=${part.kind} text=${part.text} />`;
}

/** What of a cell's end is not seen from what it shows. */
function Notes({ cell }) {
  const { exit } = cell;
  const notes = [
    unshown(cell) > 0 && `${number(unshown(cell))} more characters were printed; the page shows the beginning.`,
    exit?.cut_bytes > 0 && `${number(exit.cut_bytes)} bytes are above the limits of a cell, and were left out.`,
    exit?.restarted && "The context was begun anew for this cell: earlier names are lost.",
    exit?.lost && "The context's program has ended: its names are lost.",
  ].filter(Boolean);
  return notes.map((note) => html`<p key=${note} class="hint">${note}</p>`);
}

function Cell({ cell, onEdit }) {
  return html`<section class="card cell" aria-label="cell ${cell.number}">
    <div class="head"><span class="hint">${cell.number} · ${cell.language}</span> <${Badge} kind=${KINDS[cell.state]}>${cell.state.replace("_", " ")}<//>
      ${cell.exit && html`<span class="hint">${seconds(cell.exit.duration_ms / 1000)}</span>`}<span class="space"></span>
      <button class="small" aria-label="Edit cell ${cell.number} again" onClick=${() => onEdit(cell)}>Edit again</button></div>
    <${Text} label="code" kind="cell-code" text=${cell.code} />
    ${cell.parts.map((part, at) => html`<${Part} key=${at} part=${part} />`)}
    ${cell.failed && html`<${Failure} error=${cell.failed} />`}<${Notes} cell=${cell} /></section>`;
}

/** The state of the language's context, and what can be done with it. */
function Context({ cells, language, fixed }) {
  const context = cells.context(language);
  const act = (action) => () => cells.act(language, action);
  return html`<button disabled=${fixed || context?.status !== "busy"} onClick=${act("interrupt")}>Interrupt</button>
    <button disabled=${fixed || !context} onClick=${act("restart")}>Restart</button>
    <span class="hint" role="status">${context ? `${context.kernel ?? language}: ${context.status}` : `${language}: begins with its first cell`}</span>`;
}

function Notebook({ session }) {
  const [, draw] = useState(0);
  const [cells, setCells] = useState(null);
  const [code, setCode] = useState("");
  const [language, setLanguage] = useState(LANGUAGES[0]);
  const editor = useRef(null);
  useEffect(() => {
    const made = new Cells(session.id, () => draw((times) => times + 1));
    setCells(made);
    made.load();
    return () => made.close();
  }, [session.id]);
  if (!cells) return null;
  const fixed = session.status !== "active";
  const run = () => { if (code.trim() && !fixed) { cells.run(code, language); setCode(""); } };
  const edit = (cell) => { setCode(cell.code); setLanguage(cell.language); editor.current.focus(); };
  const press = (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); run(); } };
  const languages = [...new Set([...LANGUAGES, ...cells.contexts.filter((each) => each.name === each.language).map((each) => each.language)])];
  return html`<div class="cells" role="log" aria-label="cells">${cells.items.length
      ? cells.items.map((cell) => html`<${Cell} key=${cell.number} cell=${cell} onEdit=${edit} />`)
      : html`<${Empty}>Names stay from cell to cell. Cells are on record; what they show is only kept by this page.<//>`}</div>
    ${cells.failed && html`<${Failure} error=${cells.failed} />`}
    <section class="card cell-editor" aria-label="new cell"><label>Code
        <textarea ref=${editor} class="mono" rows="6" spellcheck=${false} value=${code} disabled=${fixed} onKeyDown=${press}
          onInput=${(event) => setCode(event.target.value)}></textarea></label>
      <div class="actions"><${Choice} label="Language" value=${language} among=${languages} onChoose=${setLanguage} />
        <button class="primary" disabled=${fixed || !code.trim()} onClick=${run}>Run</button>
        <${Context} cells=${cells} language=${language} fixed=${fixed} /></div>
      <p class="hint">${fixed ? `Code needs an active session; this one is ${session.status}.` : "Ctrl+Enter runs it. Leaving this tab interrupts what runs."}</p></section>`;
}

const WHY = "A cell could run any program, and this level permits only some.";

export const Code = ({ session }) => html`<${AnyCommand} session=${session} what="code cells" why=${WHY}><${Notebook} session=${session} /><//>`;
