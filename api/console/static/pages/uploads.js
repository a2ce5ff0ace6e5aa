// Files of a person's computer, which go into a workspace.

import { ofSession, request, withQuery } from "../api.js";

export const ROOT = ".";

/** The path of a name in a directory of the workspace. */
export const join = (directory, name) => (directory === ROOT ? name : `${directory}/${name}`);

/** Throws if something that was dropped is a directory. */
export function droppedFiles({ items, files }) {
  if ([...items].some((item) => item.webkitGetAsEntry?.()?.isDirectory)) {
    throw new Error("A directory can't be dropped: drop the files that are in it.");
  }
  return [...files];
}

/** Writes the files one after the other; `onFile` is called after each. */
export async function upload(session, directory, files, onFile = () => {}) {
  for (const file of files) {
    const path = join(directory, file.name);
    await request("PUT", withQuery(ofSession(session, "files"), { path }), { body: file });
    onFile(file);
  }
}
