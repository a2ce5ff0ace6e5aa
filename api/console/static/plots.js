// Plots of metrics over time, by uPlot, which is loaded with the first plot.

import { html, useEffect, useRef, useState } from "./vendor/preact.js";

const HEIGHT = 150;
// An axis that is shorter shows seconds.
const SECONDS_SHOWN = 300;
// For a single sample, the library would draw an axis of a day.
const LEAST_SECONDS = 60;
const POWERS = Array.from({ length: 50 }, (_, power) => 2 ** power);
const STYLES = "/console/vendor/uplot.css";
const COLOURS = ["--accent", "--warn", "--bad"];

function addStyles() {
  if (document.querySelector(`link[href="${STYLES}"]`)) return;
  const link = document.createElement("link");
  Object.assign(link, { rel: "stylesheet", href: STYLES });
  document.head.append(link);
}

/** The colour of a custom property in the current theme, in a form that a canvas can use. */
function colour(name) {
  const probe = document.createElement("span");
  probe.className = `colour${name}`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

const clock = (at, span) => new Date(at * 1000).toLocaleTimeString("en-GB", {
  hour: "2-digit", minute: "2-digit", second: span < SECONDS_SHOWN ? "2-digit" : undefined,
});

/** Draws the data over their time. */
function draw(plot, data) {
  const [times] = data;
  plot.setData(data);
  if (times.length) plot.setScale("x", { min: Math.min(times[0], times.at(-1) - LEAST_SECONDS), max: times.at(-1) });
}

function options({ width, series, show, most, binary, onCursor }) {
  const [soft, line] = [colour("--soft"), colour("--line")];
  const axis = { stroke: soft, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 } };
  return {
    width, height: HEIGHT, cursor: { y: false }, legend: { show: false },
    scales: { y: { range: (_, low, high) => [0, Math.max(most ?? 0, high * 1.1, 0.001)] } },
    axes: [{ ...axis, space: 80, values: (_, at) => at.map((each) => clock(each, at.at(-1) - at[0])) },
      { ...axis, size: 76, ...(binary && { incrs: POWERS }), values: (_, values) => values.map(show) }],
    series: [{}, ...series.map((label, at) => ({ label, stroke: colour(COLOURS[at]), width: 1.5, points: { show: (plot) => plot.data[0].length < 2 } }))],
    hooks: { setCursor: [(plot) => onCursor(plot.cursor.idx)] },
  };
}

/**
 * A plot of `series`, an array of names, over `times` (seconds); `values` has an array for each.
 * `show` writes a value with its unit; the top of the plot is `most` or more; with `binary`, its marks
 * are powers of two.
 */
export function Plot({ title, times, series, values, show, most, binary }) {
  const place = useRef(null);
  const plot = useRef(null);
  const [theme, setTheme] = useState(0);
  // The legend shows the values at the pointer, or else the latest.
  const [pointed, setPointed] = useState(null);
  const data = [times, ...values];
  // The library arrives after the data for which it is loaded.
  const latest = useRef(data);
  latest.current = data;
  useEffect(() => {
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const changed = () => setTheme((number) => number + 1);
    dark.addEventListener("change", changed);
    return () => dark.removeEventListener("change", changed);
  }, []);
  useEffect(() => {
    let gone = false;
    const fits = new ResizeObserver(([{ contentRect }]) => plot.current?.setSize({ width: contentRect.width, height: HEIGHT }));
    addStyles();
    import("./vendor/uplot.js").then(({ default: UPlot }) => {
      if (gone) return;
      const now = latest.current;
      plot.current = new UPlot(options({ width: place.current.clientWidth, series, show, most, binary, onCursor: setPointed }), now, place.current);
      draw(plot.current, now);
      fits.observe(place.current);
    });
    return () => { gone = true; fits.disconnect(); plot.current?.destroy(); plot.current = null; };
  }, [theme, series.join()]);
  useEffect(() => { if (plot.current) draw(plot.current, data); });
  const shown = (at) => { const value = values[at][pointed ?? values[at].length - 1]; return value == null ? "–" : show(value); };
  return html`<figure class="card plot"><figcaption>${title}</figcaption>
    <div ref=${place} role="img" aria-label="${title}: ${series.map((name, at) => `${name} ${shown(at)}`).join(", ")}"></div>
    <ul>${series.map((name, at) => html`<li key=${name} class="colour${COLOURS[at]}"><span>${name} <b>${shown(at)}</b></span></li>`)}</ul></figure>`;
}
