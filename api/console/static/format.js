// Numbers with units, times, and text in which invisible characters are shown.

const BYTES = ["B", "KiB", "MiB", "GiB", "TiB"];

export function bytes(value) {
  if (value == null) return "–";
  let unit = 0;
  while (value >= 1024 && unit < BYTES.length - 1) { value /= 1024; unit += 1; }
  return `${unit && value < 100 ? value.toFixed(1) : Math.round(value)} ${BYTES[unit]}`;
}

export function seconds(value) {
  if (value == null) return "–";
  if (value < 1) return `${Math.round(value * 1000)} ms`;
  if (value < 60) return `${value < 10 ? value.toFixed(1) : Math.round(value)} s`;
  if (value < 3600) return both(value, [60, "min"], [1, "s"]);
  if (value < 86400) return both(value, [3600, "h"], [60, "min"]);
  return both(value, [86400, "d"], [3600, "h"]);
}

/** The value in two units, or in one if the rest is 0. */
function both(value, [large, name], [small, rest]) {
  const left = Math.floor((value % large) / small);
  return `${Math.floor(value / large)} ${name}${left ? ` ${left} ${rest}` : ""}`;
}

export const number = (value) => (value == null ? "–" : value.toLocaleString("en"));
export const percent = (value) => (value == null ? "–" : `${Math.round(value)} %`);

/** How long ago, or in how long, as of `now` (milliseconds). */
export function relative(time, now = Date.now()) {
  const away = (now - Date.parse(time)) / 1000;
  if (Math.abs(away) < 2) return "now";
  const text = seconds(Math.abs(away)).replace(/\.\d/, "").split(" ").slice(0, 2).join(" ");
  return away > 0 ? `${text} ago` : `in ${text}`;
}

export const exact = (time) => new Date(time).toLocaleString("en-GB", {
  dateStyle: "medium", timeStyle: "medium",
});

// Control characters except tab and line feed, invisible ones, and those that change the direction.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202f\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb]|[\u{e0000}-\u{e0fff}]/gu;

/** The text in pieces `{text, hidden}`; a hidden character is shown as its code, such as `U+202E`. */
export function pieces(text) {
  const found = [];
  let from = 0;
  for (const match of text.matchAll(HIDDEN)) {
    if (match.index > from) found.push({ text: text.slice(from, match.index), hidden: false });
    const code = match[0].codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
    found.push({ text: `U+${code}`, hidden: true });
    from = match.index + match[0].length;
  }
  if (from < text.length) found.push({ text: text.slice(from), hidden: false });
  return found;
}

export const words = (argv) => (Array.isArray(argv) ? argv.map(quoted).join(" ") : String(argv ?? ""));
const quoted = (word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);
