// Follows a workspace while somebody looks at it.

import { useEffect, useRef, useState } from "../vendor/preact.js";
import { Problem, ofSession, streamed } from "../api.js";

// What changes is read again, and reading is on record: a program that writes all the time is followed at this pace.
const GATHER_MS = 1000;
const AGAIN_MS = 5000;

const parent = (path) => path.split("/").slice(0, -1).join("/") || ".";
const shown = () => document.visibilityState === "visible";

/** Calls `onChanges` with the directories that have changed, or with null if any may have. */
function gathering(onChanges, signal) {
  let [timer, directories] = [null, new Set()];
  const tell = () => {
    const changed = directories;
    [timer, directories] = [null, new Set()];
    onChanges(changed && [...changed]);
  };
  signal.addEventListener("abort", () => clearTimeout(timer));
  return ({ kind, path, source }) => {
    if (kind === "overflow") directories = null;
    for (const each of [path, source]) if (each != null) directories?.add(parent(each));
    timer ??= setTimeout(tell, GATHER_MS);
  };
}

async function watch(session, onChanges, onState, signal) {
  const heard = gathering(onChanges, signal);
  while (!signal.aborted) {
    try {
      for await (const { name, data } of streamed(ofSession(session, "files", "events"), signal)) {
        // What happened before is not told.
        if (name === "ready") { onState(true); onChanges(null); }
        if (name === "change") heard(data);
      }
    } catch (error) {
      // Where there is no watch, such as with a context pack, the page says that something may have changed.
      if (signal.aborted || (error instanceof Problem && error.status < 500 && error.status !== 429)) return;
    }
    if (signal.aborted) return;
    onState(false);
    await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
  }
}

/**
 * Whether the workspace is followed now. A watch keeps the sandbox of its session, so there is one only while the
 * page can be seen.
 */
export function useWatch(session, wanted, onChanges) {
  const [follows, setFollows] = useState(false);
  const [visible, setVisible] = useState(shown());
  const latest = useRef(onChanges);
  latest.current = onChanges;
  useEffect(() => {
    const changed = () => setVisible(shown());
    document.addEventListener("visibilitychange", changed);
    return () => document.removeEventListener("visibilitychange", changed);
  }, []);
  useEffect(() => {
    if (!wanted || !visible) return undefined;
    const stop = new AbortController();
    watch(session, (directories) => latest.current(directories), setFollows, stop.signal);
    return () => { stop.abort(); setFollows(false); };
  }, [session, wanted, visible]);
  return follows;
}
