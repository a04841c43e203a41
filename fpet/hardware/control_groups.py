"""Linux' control groups, in whose files it stands how much a process may have of the machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def control_groups(controller: str, system: Path) -> Iterator[tuple[int, Path]]:
    """The version, 1 or 2, and the folder of each control group around this process that may limit what the controller
    (cpu, memory) counts; none where there are no such groups. What a folder lacks is not limited there.

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
