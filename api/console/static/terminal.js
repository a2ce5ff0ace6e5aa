// A terminal that draws what a program prints, within the content policy of the pages.

import { html, useEffect, useRef } from "./vendor/preact.js";
import { Terminal } from "./vendor/xterm.js";
import { FitAddon } from "./vendor/xterm-fit.js";

// Sequences with which a program could deceive the page's user are off: titles, links that show
// another address than theirs, the clipboard, and operations on windows (`CSI t`) with their reports.
const IGNORED_COMMANDS = [0, 1, 2, 8, 52];
const THEME = {
  background: "#10151a", foreground: "#dfe5e1", cursor: "#7fd0a4", selectionBackground: "#3b5a4c",
};
const [FONT, LEAST_FONT] = [13, 7];
// In pixels: the border of a terminal that fills the window, and the space around a watched one.
const [LEAST_HEIGHT, EDGE, MARGIN] = [192, 2, 40];
// About this many bytes may wait to be drawn: output that arrives while they wait is not shown.
const MOST_WAITING = 4 * 1024 * 1024;

/** An element in place of `<style>`, which the content policy does not allow: its text is a style sheet. */
function styles() {
  const element = document.createElement("i");
  const sheet = new CSSStyleSheet();
  document.adoptedStyleSheets.push(sheet);
  element.hidden = true;
  Object.defineProperty(element, "textContent", { set: (text) => sheet.replaceSync(text) });
  element.remove = () => {
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((each) => each !== sheet);
    Element.prototype.remove.call(element);
  };
  return element;
}

/** Sets a style by the object model, since the content policy does not allow the attribute. */
function setAttribute(name, value) {
  if (name === "style") this.style.cssText = value;
  else Element.prototype.setAttribute.call(this, name, value);
}

/**
 * Makes new elements of the document keep to its content policy: xterm writes `<style>` elements, and `style`
 * attributes of spans. Its own option for another document does not reach all places where it makes them.
 */
function keepToPolicy() {
  document.createElement = (tag, options) => {
    if (tag === "style") return styles();
    const element = Document.prototype.createElement.call(document, tag, options);
    return tag === "span" ? Object.assign(element, { setAttribute }) : element;
  };
}

keepToPolicy();

function made({ columns, rows, writable }) {
  const terminal = new Terminal({
    cols: columns, rows, theme: THEME, fontSize: FONT, fontFamily: "ui-monospace, Menlo, Consolas, monospace",
    scrollback: 5000, disableStdin: !writable, cursorBlink: false,
    cursorInactiveStyle: "outline", screenReaderMode: true, minimumContrastRatio: 4.5,
  });
  for (const command of IGNORED_COMMANDS) terminal.parser.registerOscHandler(command, () => true);
  terminal.parser.registerCsiHandler({ final: "t" }, () => true);
  // The keyboard leads out of every terminal: a watched one leaves all keys to the page, a shell leaves one.
  terminal.attachCustomKeyEventHandler((event) => writable && !leaves(event));
  return terminal;
}

const leaves = (event) => event.ctrlKey && event.key === "F6";

/** A function that writes bytes, and drops them while too many wait to be drawn. */
function writer(terminal) {
  let waiting = 0;
  let lost = 0;
  return (data) => {
    if (waiting > MOST_WAITING) { lost += data.length; return; }
    if (lost) { terminal.write(notice(`${lost} bytes came too fast to be drawn`)); lost = 0; }
    waiting += data.length;
    terminal.write(data, () => { waiting -= data.length; });
  };
}

/** A line of the page's own in a terminal. */
export const notice = (text) => `\r\n\x1b[0;33m[${text}]\x1b[0m\r\n`;

/** Gives a terminal the room that the window has below its beginning, without a need to scroll. */
function fill(place, fit) {
  const top = place.getBoundingClientRect().top + scrollY;
  const below = [place.parentElement, place.closest("main")].reduce((sum, each) => sum + parseFloat(getComputedStyle(each).paddingBottom), EDGE);
  place.style.height = `${Math.max(LEAST_HEIGHT, Math.floor(innerHeight - top - below))}px`;
  fit.fit();
}

/** Makes the font of a terminal with its program's size so small that the window shows all of it, down to a limit. */
function shrink(box, terminal) {
  const drawn = box.querySelector(".xterm-screen");
  if (!drawn?.clientWidth) return;
  const { paddingLeft, paddingRight } = getComputedStyle(box);
  const wide = (box.clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight)) / (drawn.clientWidth / terminal.options.fontSize);
  const high = (innerHeight - MARGIN) / (drawn.clientHeight / terminal.options.fontSize);
  const size = Math.max(LEAST_FONT, Math.min(FONT, Math.floor(Math.min(wide, high) * 4) / 4));
  if (size !== terminal.options.fontSize) terminal.options.fontSize = size;
}

/**
 * A terminal on the page. `onReady({terminal, write, size})` is called once it can be drawn on, and may
 * return a function that is called at its end. With `fits`, it has the size of its place. `size()` is
 * `{columns, rows}`.
 */
export function Screen({ label, columns = 80, rows = 24, writable = false, fits = false, onReady }) {
  const place = useRef(null);
  useEffect(() => {
    const terminal = made({ columns, rows, writable });
    const fit = new FitAddon();
    terminal.loadAddon(fit);
    terminal.open(place.current);
    terminal.textarea?.setAttribute("aria-label", label);
    const leave = (event) => { if (leaves(event)) place.current.closest("section")?.querySelector("button")?.focus(); };
    place.current.addEventListener("keydown", leave);
    const adapt = () => (fits ? fill(place.current, fit) : shrink(place.current.parentElement, terminal));
    let frame = null;
    // In the next frame, because it changes what is observed.
    const soon = () => { frame ??= requestAnimationFrame(() => { frame = null; adapt(); }); };
    // It also moves when something above it in the same part of the page grows.
    const watcher = new ResizeObserver(soon);
    watcher.observe(place.current.parentElement);
    watcher.observe(place.current.closest("main"));
    addEventListener("resize", soon);
    const resized = terminal.onResize(() => { if (!fits) soon(); });
    adapt();
    // A terminal that is out of sight is not drawn.
    if (!fits) place.current.parentElement.scrollIntoView({ block: "nearest" });
    const end = onReady({ terminal, write: writer(terminal), size: () => ({ columns: terminal.cols, rows: terminal.rows }) });
    return () => { watcher.disconnect(); cancelAnimationFrame(frame); removeEventListener("resize", soon); resized.dispose(); end?.(); terminal.dispose(); };
  }, []);
  return html`<div class="screen ${fits ? "fits" : ""}" role="group" aria-label=${label}><div ref=${place}></div></div>`;
}
