"""What the service and the library do with hostile input, under load and when things fail."""
