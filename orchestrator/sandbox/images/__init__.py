"""Images that have no agent of ours: what is on record of them, and the agent for them."""
