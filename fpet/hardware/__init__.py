"""What the machine gives, and how torch is told to use it."""
