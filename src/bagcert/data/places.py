"""Where data lies on this machine."""

import os
from pathlib import Path


def data_folder(data_dir: Path | None = None) -> Path:
    """The folder given, else `BAGCERT_DATA`, else `~/.cache/bagcert`."""
    if data_dir is not None:
        return data_dir.expanduser()
    return Path(os.environ.get("BAGCERT_DATA") or "~/.cache/bagcert").expanduser()
