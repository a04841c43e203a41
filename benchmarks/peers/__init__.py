"""Other ways to serve the same model over HTTP, timed beside this service."""
