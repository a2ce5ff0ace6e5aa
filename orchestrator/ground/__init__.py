"""What every floor needs: errors, tasks, threads, metrics, taking turns, and the database."""
