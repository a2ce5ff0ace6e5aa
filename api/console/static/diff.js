// A unified diff as rows of two columns.

const RANGES = /^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@/;

/**
 * The hunks `{title, rows}` of a unified diff. A row is `{old, fresh, same}`: a line of each side,
 * `{number, text, unended}`, or null where a side has none. `unended` means that no line feed ends it.
 */
export function hunksOf(diff) {
  const hunks = [];
  const lines = diff.split("\n");
  if (lines.at(-1) === "") lines.pop();
  for (const line of lines) {
    const ranges = RANGES.exec(line);
    if (ranges) hunks.push({ title: line, lines: [], old: Number(ranges[1]), fresh: Number(ranges[2]) });
    else hunks.at(-1)?.lines.push(line); // lines before the first hunk are names
  }
  return hunks.map((hunk) => ({ title: hunk.title, rows: rowsOf(hunk) }));
}

function rowsOf({ lines, old, fresh }) {
  const rows = [];
  let removed = [], added = [], last = [];
  // Removed lines are put beside the lines that replace them.
  const pair = () => {
    for (let at = 0; at < Math.max(removed.length, added.length); at += 1) {
      rows.push({ old: removed[at] ?? null, fresh: added[at] ?? null, same: false });
    }
    removed = [];
    added = [];
  };
  for (const line of lines) {
    const [mark, text] = [line[0], line.slice(1)];
    if (mark === "\\") {
      for (const each of last) each.unended = true;
    } else if (mark === "-") {
      if (added.length) pair();
      removed.push(...(last = [{ number: old++, text }]));
    } else if (mark === "+") {
      added.push(...(last = [{ number: fresh++, text }]));
    } else {
      pair();
      last = [{ number: old++, text }, { number: fresh++, text }];
      rows.push({ old: last[0], fresh: last[1], same: true });
    }
  }
  pair();
  return rows;
}
