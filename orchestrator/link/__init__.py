"""The connection to the agent of a sandbox: socket, frames, messages."""
