"""Pin what the tests are run with, and name the SHA-256 of every file of each version.

All files of a version, for every platform and Python: the same list serves them all. Of torch there is the CPU build
alone, which comes from another index and is named here as a file: with the other builds come gigabytes of libraries.

    python -m supply.hashes --cpu-torch torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl
    pip install --no-deps --require-hashes -r supply/requirements.txt
"""

import argparse
import re
import urllib.request
from pathlib import Path

from packaging.utils import InvalidSdistFilename, InvalidWheelFilename, parse_sdist_filename, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from bagcert.files import sha256
from supply.installed import needed

FILE = Path(__file__).parent / "requirements.txt"
INDEX = "https://pypi.org/simple"
HEAD = """\
# What the tests were run with, and the SHA-256 of every file of each version: python -m supply.hashes
# pip install --no-deps --require-hashes -r supply/requirements.txt
"""


def version_of(name: str) -> Version | None:
    """The version that a file's name tells; None for what pip does not install."""
    try:
        return parse_wheel_filename(name)[1] if name.endswith(".whl") else parse_sdist_filename(name)[1]
    except (InvalidSdistFilename, InvalidVersion, InvalidWheelFilename):
        return None


def hashes_on(page: str, version: Version) -> list[str]:
    """The SHA-256 of the files of a version on a page of the index."""
    links = re.findall(r'#sha256=([0-9a-f]{64})"[^>]*>\s*([^<\s]+)\s*<', page)
    return sorted(digest for digest, name in links if version_of(name) == version)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--index", default=INDEX, help="simple index to read")
    parser.add_argument("--cpu-torch", type=Path, nargs="+", required=True, help="wheels of the CPU build")
    options = parser.parse_args()
    lines = [HEAD]
    for name, found in needed(("all", "dev")).items():
        version = Version(found.version)
        if name == "torch":
            known = [sha256(path.read_bytes()) for path in options.cpu_torch if version_of(path.name) == version]
        else:
            with urllib.request.urlopen(f"{options.index}/{name}/", timeout=60) as answer:
                known = hashes_on(answer.read().decode(), version)
        if not known:
            raise SystemExit(f"error: there is no file of {name} {version}.")
        lines.append(" \\\n    ".join([f"{name}=={version}", *(f"--hash=sha256:{each}" for each in known)]) + "\n")
        print(f"{name} {version}: {len(known)} files")
    FILE.write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
