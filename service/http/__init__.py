"""HTTP/1.1 around the application: connections, limits, ids, and errors as answers; nothing of tasks or models."""
