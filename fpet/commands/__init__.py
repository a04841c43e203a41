"""The sub-commands of `fpet`, one file each."""
