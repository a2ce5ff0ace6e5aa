"""What everything in the agent uses: its loop, its connection, events, budgets, output."""
