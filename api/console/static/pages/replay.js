// A terminal as it was drawn, from its recording.

import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { ofSession, request, withQuery } from "../api.js";
import { Failure, Loading, useLoaded } from "../parts.js";
import { seconds } from "../format.js";
import { Player, parse, shortened } from "../recording.js";
import { Screen } from "../terminal.js";

const SPEEDS = [1, 2, 4, 8, 16];
const LONGEST_PAUSE = 1;

const clock = (value) => `${Math.floor(value / 60)}:${String(Math.floor(value % 60)).padStart(2, "0")}`;

/** The time of the replay, which runs while it plays: `[time, seek]`. */
function useTime(playing, speed, end, onEnd) {
  const [time, setTime] = useState(0);
  const at = useRef(0);
  const seek = (value) => { at.current = Math.max(0, Math.min(value, end)); setTime(at.current); };
  useEffect(() => {
    if (!playing) return undefined;
    let last = performance.now();
    let frame = null;
    const step = (now) => {
      seek(at.current + ((now - last) / 1000) * speed);
      last = now;
      if (at.current >= end) onEnd();
      else frame = requestAnimationFrame(step);
    };
    frame = requestAnimationFrame(step);
    return () => cancelAnimationFrame(frame);
  }, [playing, speed, end]);
  return [time, seek];
}

function Controls({ time, end, seek, playing, play, speed, setSpeed, cut, setCut }) {
  const most = Math.max(0.1, Math.ceil(end * 10) / 10);
  const toggle = () => { if (!playing && time >= end) seek(0); play(!playing); };
  return html`<div class="actions player">
    <button class="primary" onClick=${toggle}>${playing ? "Pause" : "Play"}</button>
    <input type="range" min="0" max=${most} step="0.1" value=${time >= end ? most : time} aria-label="Time" aria-valuetext=${`${seconds(time)} of ${seconds(end)}`}
      onInput=${(event) => seek(Number(event.target.value))} />
    <span class="num">${clock(time)} / ${clock(end)}</span>
    <select aria-label="Speed" value=${speed} onChange=${(event) => setSpeed(Number(event.target.value))}>
      ${SPEEDS.map((each) => html`<option key=${each} value=${each}>${each}×</option>`)}</select>
    <label class="choice"><input type="checkbox" checked=${cut} onChange=${(event) => setCut(event.target.checked)} /> cut idle time</label></div>`;
}

function Playing({ recording }) {
  const [playing, play] = useState(true);
  const [speed, setSpeed] = useState(1);
  const [cut, setCut] = useState(true);
  const [terminal, setTerminal] = useState(null);
  const player = useRef(null);
  const events = cut ? shortened(recording.events, LONGEST_PAUSE) : recording.events;
  const end = events.at(-1)?.at ?? 0;
  const [time, seek] = useTime(playing && terminal !== null, speed, end, () => play(false));
  useEffect(() => { if (terminal) { player.current = new Player(recording, events, terminal); player.current.show(time); } }, [terminal, cut]);
  useEffect(() => player.current?.show(time), [time]);
  return html`<section class="terminal" aria-label="replay"><${Controls} time=${time} end=${end} seek=${seek} playing=${playing} play=${play}
      speed=${speed} setSpeed=${setSpeed} cut=${cut} setCut=${(value) => { setCut(value); seek(0); }} />
    <${Screen} label="replay" columns=${recording.columns} rows=${recording.rows} onReady=${(screen) => setTerminal(screen.terminal)} /></section>`;
}

export function Replay({ session, pty }) {
  const path = withQuery(ofSession(session.id, "ptys", pty, "recording"), { incarnation: session.incarnation });
  const [recording, error] = useLoaded(async () => parse(await (await request("GET", path)).text()), [path]);
  if (error) return html`<${Failure} error=${error} />`;
  return recording ? html`<${Playing} recording=${recording} />` : html`<${Loading} what="the recording" />`;
}
