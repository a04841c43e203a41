"""The parts of `service.catalog`: the folder of task files, how they are loaded, and who looks for changes."""
