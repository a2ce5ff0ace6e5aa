"""The connection to a sandbox's agent: socket, frames, messages."""
