"""What every server of HTTP needs: streams that break, sockets passed on, documents of errors."""
