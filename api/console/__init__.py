"""The console: pages for a browser, which use the API as any other client."""
