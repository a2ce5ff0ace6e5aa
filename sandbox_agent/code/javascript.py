"""JavaScript: Node's own evaluator, with top-level await, in a process of its own."""

import json
import os
import subprocess
from typing import Any

from sandbox_agent.code.channel import Channel, shortened

# Cells come as lines of JSON on the descriptor 3, and what comes of them goes out on 4.
_PROGRAM = r"""
const fs = require('fs'), util = require('util'), vm = require('vm');
const {PassThrough} = require('stream');
const server = require('repl').start({
  prompt: '', input: new PassThrough(), output: new PassThrough(), terminal: false,
  useGlobal: true,
});
let busy = null;
const tell = (told) => fs.writeSync(4, JSON.stringify(told) + '\n');
const parts = (value) => {
  const found = {'text/plain': util.inspect(value, {maxArrayLength: 200, maxStringLength: 50000})};
  if (value !== null && typeof value === 'object') {
    for (const [name, part] of Object.entries(value[Symbol.for('Jupyter.display')]?.() ?? {}))
      found[name] = typeof part === 'string' ? part : JSON.stringify(part);
    const plain = Array.isArray(value) || Object.getPrototypeOf(value) === Object.prototype;
    try { if (plain) found['application/json'] = JSON.stringify(value); } catch {}
  }
  return found;
};
// Without what is this program's and Node's own.
const stack = (error) => String(error.stack).split('\n')
  .filter((line) => !/^ +at .*(node:|\[eval\])/.test(line)).join('\n');
const end = (error, value) => {
  if (busy === null) { if (error) console.error(error); return; }
  const count = busy;
  busy = null;
  error = error?.err ?? error;
  if (error?.code === 'ERR_SCRIPT_EXECUTION_INTERRUPTED')
    error = Object.assign(new Error('the cell was interrupted'), {name: 'KeyboardInterrupt'});
  if (error !== null && error !== undefined) {
    const known = error instanceof Error;
    tell({count, error: {
      name: known ? String(error.name) : 'Error',
      message: known ? String(error.message) : util.inspect(error),
      traceback: known ? stack(error) : util.inspect(error),
    }});
  } else tell({count, value: value === undefined ? null : parts(value)});
};
globalThis.display = (value) => { tell({count: busy, display: parts(value)}); };
process.on('SIGINT', () =>
  busy !== null && end(Object.assign(new Error('the cell was interrupted'),
    {name: 'KeyboardInterrupt'})));
process.on('uncaughtException', (error) => end(error));
process.on('unhandledRejection', (error) => end(error));
// Only a script of its own can be interrupted in a loop; the evaluator knows top-level await.
const run = (code, filename, then) => {
  let script;
  try { script = new vm.Script(code, {filename}); }
  catch { server.eval(code + '\n', server.context, filename, then); return; }
  let value;
  try { value = script.runInThisContext({breakOnSigint: true}); }
  catch (error) { then(error ?? new Error(String(error))); return; }
  then(null, value);
};
require('readline').createInterface({input: fs.createReadStream(null, {fd: 3})})
  .on('line', (line) => {
    const {count, code} = JSON.parse(line);
    busy = count;
    run(code, `<cell ${count}>`, (error, value) => { if (busy === count) end(error, value); });
  })
  .on('close', () => process.exit());
"""


class JavaScriptEngine:
    """Executes cells in one process of Node."""

    def __init__(self, channel: Channel) -> None:
        self.over = False
        self._channel = channel
        cells, self._cells = os.pipe()
        self._told_by, told = os.pipe()
        self._node = subprocess.Popen(
            ["node", "-e", _PROGRAM],
            close_fds=False,
            preexec_fn=lambda: _place(cells, told),
        )
        os.close(cells)
        os.close(told)
        self._lines = os.fdopen(self._told_by, "r", encoding="utf-8", errors="replace")
        self.kernel = "node"

    def run(self, code: str, count: int) -> None:
        """Executes one cell."""
        try:
            os.write(self._cells, json.dumps({"count": count, "code": code}).encode() + b"\n")
        except BrokenPipeError:
            self._ended()
            return
        while True:
            line = self._lines.readline()
            if not line:
                self._ended()
                return
            if self._tell(json.loads(line), count):
                return

    def interrupt(self) -> None:
        """Does nothing: Node has got the interrupt, too, and tells the end of the cell."""

    def close(self) -> None:
        """Ends the process."""
        self._node.kill()
        self._node.wait()
        self._lines.close()
        os.close(self._cells)

    def _tell(self, told: dict[str, Any], count: int) -> bool:
        """Passes it on; returns whether it is the end of the cell of that number."""
        if "display" in told:
            self._channel.value("display", _shown(told["display"]))
        elif told["count"] == count:
            if "error" in told:
                texts = {name: shortened(text) for name, text in told["error"].items()}
                self._channel.value("error", texts)
            elif told["value"] is not None:
                self._channel.value("result", _shown(told["value"]))
            return True
        return False

    def _ended(self) -> None:
        self.over = True
        message = f"Node has ended with exit code {self._node.wait()}"
        error = {"name": "NodeEnded", "message": message, "traceback": f"NodeEnded: {message}\n"}
        self._channel.value("error", error)


def _shown(parts: dict[str, str]) -> dict[str, str]:
    """The parts; the plain text is not longer than that of other languages."""
    return {name: shortened(text) if name == "text/plain" else text for name, text in parts.items()}


def _place(cells: int, told: int) -> None:
    """Gives Node its descriptors, wherever these are now."""
    cells, told = os.dup(cells), os.dup(told)
    os.dup2(cells, 3)
    os.dup2(told, 4)
