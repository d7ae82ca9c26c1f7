"""Files that are complete or absent: atomic writes, tensors as safetensors, text within limits."""

import errno
import glob
import gzip
import hashlib
import io
import json
import os
import secrets
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO, cast, final

import safetensors
import safetensors.torch
from torch import Tensor

from bagcert.errors import UsageError


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that a crash at any moment leaves either the old file or the new one.

    The content goes to a new file in the same folder, which replaces the old one once it is on the disk. The new file
    has a random name and must not exist yet, so nobody else who may write to the folder can put a link in its way.
    """
    part = path.with_name(f"{path.name}.{secrets.token_hex(8)}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with ExitStack() as cleanup:
            with open(part, "xb", opener=not_through_links) as file:
                cleanup.callback(part.unlink, missing_ok=True)
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
    except OSError as error:
        kept = " The file that was there is kept." if os.path.exists(path) else ""
        raise UsageError(
            f"Cannot write {path}: {error.strerror or error}.{kept} Make room, or choose another folder."
        ) from error
    try:
        sync_folder(path.parent)
    except OSError as error:
        raise UsageError(
            f"Cannot tell whether {path} reached the disk: {error.strerror or error}. A power failure may lose it. "
            "Check the disk."
        ) from error


def remove_parts(path: Path) -> None:
    """Remove what killed writes of this file left beside it. No other process may be writing the file."""
    for part in path.parent.glob(f"{glob.escape(path.name)}*.part"):
        part.unlink(missing_ok=True)


def not_through_links(path: str, flags: int) -> int:
    """An opener for `open` that refuses symbolic links, on platforms that support this."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk, if the platform and the file system support this."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EINVAL):  # the folder may not be listed; not supported
            raise


def write_json(path: Path, content: Any) -> None:
    """Write JSON atomically, indented for human readers."""
    write_atomically(path, (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode())


def append(path: Path, lines: list[str]) -> None:
    """Add lines to a growing file; they are on the disk when this returns."""
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write("".join(lines))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise UsageError(
            f"Cannot write {path}: {error.strerror or error}. The rows so far are kept. Make room, and repeat the "
            "command to continue."
        ) from error


def pack_tensors(tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> bytes:
    """The content of one safetensors file with these tensors and JSON facts."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    return safetensors.torch.save(plain, metadata={"facts": json.dumps(facts)})


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The inverse of `pack_tensors`; nothing in the file is executed."""
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            facts = json.loads((file.metadata() or {}).get("facts", "{}"))
            return {name: file.get_tensor(name) for name in file.keys()}, facts  # noqa: SIM118 (no iterator)
    except (OSError, safetensors.SafetensorError, json.JSONDecodeError) as error:
        raise UsageError(f"Cannot read {path} as safetensors: {error}. Copy it again.") from error


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, RecursionError, ValueError) as error:  # not JSON, not UTF-8, a number of thousands of digits
        raise UsageError(f"Cannot read {path} as JSON: {error}. Copy it again.") from error
    if not isinstance(content, dict):
        raise UsageError(f"{path} must hold a JSON object, not a {type(content).__name__}. Copy it again.")
    return content


def read_lines(path: Path, most_bytes: int, most_lines: int, longest: int) -> Iterator[str]:
    """The lines of a plain, gzipped or xz text file, with their line ends; ValueError if it exceeds the limits.

    The file is read in pieces. Memory holds at most the longest line, however much a small packed file unpacks to.
    """
    with opened(path) as file:
        lines = 0
        try:
            while line := file.readline(min(longest, most_bytes) + 1):
                lines, most_bytes = lines + 1, most_bytes - len(line)
                if len(line) > longest:
                    raise ValueError(f"a line of more than {longest} bytes")
                if most_bytes < 0 or lines > most_lines:
                    raise ValueError("more text than a file of this kind holds")
                yield line.decode()
        except zlib.error as error:  # damaged bytes inside a gzipped file
            raise ValueError(error) from error


def opened(path: Path) -> BinaryIO:
    """The unpacked bytes of a file that is packed as its name says."""
    if path.suffix == ".gz":
        return cast(BinaryIO, gzip.open(path, "rb"))
    return io.BufferedReader(UnpackedXz(path)) if path.suffix == ".xz" else path.open("rb")


@final
class UnpackedXz(io.RawIOBase):
    """Unpacks .xz within a limit of memory, which `lzma.open` does not know: a forged file may ask for gigabytes."""

    def __init__(self, path: Path, most_memory: int = 2**26) -> None:
        import lzma  # some builds of Python lack it

        self._errors = lzma.LZMAError
        self._decoder = lzma.LZMADecompressor(lzma.FORMAT_XZ, most_memory)
        self._file = path.open("rb")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._decoder.eof:
            packed = self._file.read(2**16) if self._decoder.needs_input else b""
            if self._decoder.needs_input and not packed:
                raise EOFError("the file is cut off")
            try:
                part = self._decoder.decompress(packed, len(buffer))
            except self._errors as error:
                raise ValueError(error) from error
            if part:
                buffer[: len(part)] = part
                return len(part)
        return 0

    def close(self) -> None:
        self._file.close()
        super().close()


def pack(content: bytes, suffix: str) -> bytes:
    """The inverse, for a file whose name ends so; the same content gives the same bytes."""
    if suffix == ".gz":
        return gzip.compress(content, 9, mtime=0)
    import lzma

    assert suffix == ".xz"
    # Long matches, searched for thoroughly: rows repeat themselves from line to line. 1.1 bytes per record of a sweep;
    # preset 9 needs twice, gzip three times as many.
    tuned = {"id": lzma.FILTER_LZMA2, "preset": 3, "mode": lzma.MODE_NORMAL, "mf": lzma.MF_HC4}
    return lzma.compress(content, filters=[{**tuned, "nice_len": 273, "depth": 48}])


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
