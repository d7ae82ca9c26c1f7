"""A download that resumes where the last one stopped. A file gets its final name once it is complete and checked."""

import hashlib
import http.client
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from rich.progress import Progress

from bagcert.files import not_through_links

CHUNK = 1 << 20
TIMEOUT = 20  # seconds without a byte
HTTP_PARTIAL = 206
HTTP_RANGE_NOT_SATISFIABLE = 416


class FetchError(Exception):
    """One source failed, and why, in a few words. Other sources may still work."""


def file_md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def download(url: str, path: Path, md5: str, progress: Progress) -> None:
    """Fetch `url` to `path`, resuming from `path.part` if the server can; raise `FetchError` if this fails.

    A complete `.part` with the wrong MD5 is removed. If it was resumed, its first half may be to blame, so one more
    attempt starts from zero.
    """
    part = path.with_name(path.name + ".part")  # a fixed name: it must be found again to be resumed
    if part.is_symlink():
        part.unlink()  # not ours: we must not write to what it points to
    resumed = part.exists() and part.stat().st_size > 0
    receive(url, part, progress)
    found = file_md5(part)
    if found == md5:
        part.replace(path)
        return
    part.unlink()
    if not resumed:
        raise FetchError(f"{url} has the MD5 {found} instead of {md5}")
    download(url, path, md5, progress)


def receive(url: str, part: Path, progress: Progress) -> None:
    """Append what is missing to `part`. If the connection breaks, `part` keeps what has arrived."""
    have = part.stat().st_size if part.exists() else 0
    task = progress.add_task(url.rsplit("/", 1)[-1], total=None)
    try:
        with urlopen(Request(url, headers={"Range": f"bytes={have}-"} if have else {}), timeout=TIMEOUT) as response:
            if response.status != HTTP_PARTIAL:  # the server sends everything again
                have = 0
            length = response.headers.get("Content-Length")
            total = have + int(length) if length else None
            progress.update(task, total=total, completed=have)
            with open(part, "ab" if have else "wb", opener=not_through_links) as file:
                while chunk := response.read(CHUNK):
                    file.write(chunk)
                    have += len(chunk)
                    progress.update(task, completed=have)
        if total is not None and have != total:
            raise FetchError(f"{url} sent {have} of {total} bytes")
    except HTTPError as error:
        if error.code != HTTP_RANGE_NOT_SATISFIABLE:  # nothing is missing: let the MD5 decide
            raise FetchError(f"{url}: {error.code} {error.reason}") from None
    except (OSError, http.client.HTTPException) as error:
        raise FetchError(f"{url}: {getattr(error, 'reason', None) or error}") from None
    finally:
        progress.remove_task(task)
