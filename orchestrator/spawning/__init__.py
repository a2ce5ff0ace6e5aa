"""Children of sessions: spawned from them, with less, and ended with them."""
