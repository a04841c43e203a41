"""One training run: its recipe, its steps, what it needs to go on after it was killed."""
