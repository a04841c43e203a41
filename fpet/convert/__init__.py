"""Files of other projects to files of this one, and back."""
