// Recordings of terminals (asciicast v2), and playing them.

/** `{columns, rows, events, seconds}`; an event is `{at, kind, data}`. Raises: Error if it is no recording. */
export function parse(text) {
  const [first, ...lines] = text.split("\n");
  const header = JSON.parse(first);
  if (header.version !== 2) throw new Error("This is not a recording that the console can play.");
  const events = [];
  for (const line of lines.filter(Boolean)) {
    const event = parsed(line);
    if (!event) break;
    const [at, kind, data] = event;
    events.push({ at, kind, data });
  }
  return { columns: header.width, rows: header.height, events, seconds: events.at(-1)?.at ?? 0 };
}

// A recording that is incomplete may end in the middle of a line.
function parsed(line) {
  try { return JSON.parse(line); } catch { return null; }
}

/** The events, with no longer pause between two than `most` seconds. */
export function shortened(events, most) {
  let cut = 0;
  let last = 0;
  return events.map((event) => {
    cut += Math.max(0, event.at - last - most);
    last = event.at;
    return { ...event, at: event.at - cut };
  });
}

const SIZE = /^(\d{1,3})x(\d{1,3})$/;

/** Draws events up to a time; to go back in time, it draws from the beginning. */
export class Player {
  constructor(recording, events, terminal) {
    Object.assign(this, { recording, events, terminal, next: 0 });
    this.begin();
  }

  get seconds() {
    return this.events.at(-1)?.at ?? 0;
  }

  begin() {
    this.terminal.reset();
    this.terminal.resize(this.recording.columns, this.recording.rows);
    this.next = 0;
  }

  /** Draws the terminal as it was at that time. */
  show(time) {
    if (this.next > 0 && this.events[this.next - 1].at > time) this.begin();
    let text = "";
    for (; this.next < this.events.length && this.events[this.next].at <= time; this.next += 1) {
      const { kind, data } = this.events[this.next];
      if (kind === "o") text += data;
      const size = kind === "r" && SIZE.exec(data);
      if (size) { this.terminal.write(text); text = ""; this.terminal.resize(Number(size[1]), Number(size[2])); }
    }
    if (text) this.terminal.write(text);
  }
}
