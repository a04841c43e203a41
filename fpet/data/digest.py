"""One SHA-256 for a data set of several files."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping


def sha256_of_files(digests: Mapping[str, str]) -> str:
    """The digest of what `sha256sum` prints for the files, sorted by name; `digests` maps names to their digests.

    A name that is no UTF-8 counts by its bytes.
    """
    lines = "".join(f"{digests[name]}  {name}\n" for name in sorted(digests))
    return hashlib.sha256(lines.encode(errors="surrogateescape")).hexdigest()
