"""Linux control groups, whose files say how much of the machine a process may use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def control_groups(controller: str, system: Path) -> Iterator[tuple[int, Path]]:
    """Version, 1 or 2, and folder of each control group that holds this process and may limit a controller (cpu,
    memory); none where there are no such groups. A folder without the file of a limit does not set it.

    /proc/self/cgroup has lines `number:controllers:path`; that of version 2 names no controllers. A container may see
    its own group as the root of the mounted tree, whatever the path says: so all groups above count that are there.

    system: the root of the file system.
    """
    try:
        lines = (system / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for _, controllers, path in (line.split(":", 2) for line in lines):
        if controllers and controller not in controllers.split(","):
            continue
        tree = system / "sys/fs/cgroup" / (controller if controllers else "")
        group = tree / path.lstrip("/")
        for folder in (group, *group.parents):
            if folder.is_relative_to(tree):
                yield (1 if controllers else 2), folder
