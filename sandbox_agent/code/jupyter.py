"""Kernels of Jupyter, by their own messages, where the image has `jupyter_client`.

A kernel is a process of its own, so a cell that breaks it breaks nothing of this program, and every
language that has a kernel works alike.
"""

import importlib
import importlib.util
import queue
import re
import threading
from pathlib import Path
from typing import Any

from sandbox_agent.code.channel import Channel, shortened
from sandbox_agent.code.values import PLAIN, text_of

_READY_SECONDS = 50.0
# How often it is looked whether a silent kernel still lives.
_LOOK_SECONDS = 1.0
# Executed in a kernel of IPython, which leaves no names behind.
_SETUP = """
def _setup(place):
    import sys
    sys.path.insert(0, place)
    try:
        from sandbox_agent.code.ipython import register
        register(get_ipython())
    finally:
        sys.path.remove(place)
_setup(%r)
del _setup
"""
_PLACE = str(Path(__file__).resolve().parents[2])
# Colours of terminals.
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


def kernels() -> dict[str, str]:
    """The kernels that are installed, by their names and by their languages in small letters."""
    if importlib.util.find_spec("jupyter_client") is None:
        return {}
    specs = importlib.import_module("jupyter_client.kernelspec").KernelSpecManager()
    found: dict[str, str] = {}
    for name, each in specs.get_all_specs().items():
        language = str(each["spec"].get("language", name)).lower()
        found.setdefault(language, name)
        found[name] = name
    return found


class JupyterEngine:
    """Executes cells in one kernel."""

    def __init__(self, channel: Channel, name: str) -> None:
        """Starts the kernel of that name."""
        manager = importlib.import_module("jupyter_client.manager").KernelManager
        self.over = False
        self.kernel = f"jupyter-{name}"
        self._channel = channel
        # Its sockets are files: no other program of the sandbox can connect to them by a number.
        self._manager = manager(kernel_name=name, transport="ipc")
        self._manager.start_kernel()
        self._client = self._manager.client()
        self._client.start_channels()
        self._client.wait_for_ready(timeout=_READY_SECONDS)
        if self._manager.kernel_spec.language == "python":
            self._client.execute(_SETUP % _PLACE, silent=True)

    def run(self, code: str, count: int) -> None:
        """Executes one cell."""
        asked = self._client.execute(code, allow_stdin=False)
        while True:
            try:
                message = self._client.get_iopub_msg(timeout=_LOOK_SECONDS)
            except queue.Empty:
                if not self._manager.is_alive():
                    self._ended()
                    return
                continue
            if message["parent_header"].get("msg_id") != asked:
                continue
            content = message["content"]
            if message["msg_type"] == "status" and content["execution_state"] == "idle":
                return
            self._pass_on(message["msg_type"], content)

    def interrupt(self) -> None:
        """Interrupts the kernel, which is in a group of its own that the signal did not reach."""
        threading.Thread(target=self._manager.interrupt_kernel, daemon=True).start()

    def close(self) -> None:
        """Ends the kernel."""
        self._client.stop_channels()
        self._manager.shutdown_kernel(now=True)

    def _pass_on(self, kind: str, content: dict[str, Any]) -> None:
        if kind == "stream":
            stream = "err" if content["name"] == "stderr" else "out"
            self._channel.send(stream, content["text"].encode("utf-8", "replace"))
        elif kind in ("execute_result", "display_data"):
            kind = "result" if kind == "execute_result" else "display"
            self._channel.value(kind, _parts(content["data"]))
        elif kind == "error":
            lines = "\n".join(content["traceback"])
            error = {
                "name": content["ename"],
                "message": shortened(content["evalue"]),
                "traceback": shortened(_ESCAPES.sub("", lines) + "\n"),
            }
            self._channel.value("error", error)

    def _ended(self) -> None:
        self.over = True
        error = {"name": "KernelEnded", "message": "the kernel has ended", "traceback": ""}
        self._channel.value("error", error)


def _parts(bundle: dict[str, Any]) -> dict[str, str]:
    """The texts of a value by their types; JSON as text."""
    found = {name: text_of(part) for name, part in bundle.items()}
    parts = {name: text for name, text in found.items() if text is not None}
    return parts | ({PLAIN: shortened(parts[PLAIN])} if PLAIN in parts else {})
