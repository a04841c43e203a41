"""The parts of `service.catalog`: the folder of task files, their loading, their entries, and the watch for changes."""
