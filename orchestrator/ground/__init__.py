"""What every floor needs: errors, tasks, threads, metrics, fair shares, and the database."""
