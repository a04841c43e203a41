"""Numbers that the documentation states, each by a command."""
