"""The HTTP interface, one file a subject."""
