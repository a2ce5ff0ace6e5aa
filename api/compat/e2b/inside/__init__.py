"""What E2B's SDKs reach inside a sandbox: processes, files, and the interpreter."""
