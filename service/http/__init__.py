"""HTTP/1.1 around the application: connections, limits, ids, errors as answers, and the record of each request."""
