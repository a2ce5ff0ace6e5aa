// Files that go to a person's computer.

const KEPT_MS = 60_000;

/** Has the browser save a Blob as a file of that name. */
export function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), KEPT_MS);
}
