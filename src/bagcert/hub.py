"""Models of the Hugging Face Hub as folders of its local cache, each at one commit.

Two files are fetched, the card and the weights, which are safetensors: nothing that Python would run. The weights must
have the SHA-256 on the card, as in every folder. With HF_HUB_OFFLINE=1 the cache alone is asked.
"""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from bagcert.errors import UsageError, first_line, need_packages
from bagcert.scorers.weights import CONFIG, WEIGHTS
from bagcert.version import __version__

PREFIX = "hf-hub:"
REPOSITORY = r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*"
MAIN = "main"  # the revision if none is named
NEEDED = {"huggingface_hub": "huggingface_hub"}


def is_on_hub(name: str | Path) -> bool:
    """Whether this names a model of the Hub."""
    return isinstance(name, str) and name.startswith(PREFIX)


def read_reference(text: str) -> tuple[str, str]:
    """Repository and revision of `hf-hub:owner/name` or `hf-hub:owner/name@revision`."""
    found = re.fullmatch(rf"{PREFIX}({REPOSITORY})(?:@([\w./-]+))?", text)
    if found is None or ".." in text:
        raise UsageError(f"Cannot read the model '{text}'. Write hf-hub:owner/name or hf-hub:owner/name@revision.")
    return found[1], found[2] or MAIN


def need_repository(name: str) -> None:
    """Refuse what is no owner/name."""
    if not re.fullmatch(REPOSITORY, name):
        raise UsageError(f"A repository of the Hub is written owner/name, but this is '{name}'.")


def pinned(text: str, folder: Path) -> str:
    """The same model with its commit, which nobody can move."""
    return f"{PREFIX}{read_reference(text)[0]}@{folder.name}"


def download(text: str) -> Path:
    """The folder of a model of the Hub, fetched unless the cache has it; says which commit it is."""
    repository, revision = read_reference(text)
    need_packages(f"A model of the Hub ({text})", NEEDED)
    from huggingface_hub import hf_hub_download

    fetch = partial(hf_hub_download, repository, library_name="bagcert", library_version=__version__)
    with hub_errors(repository, revision):
        folder = Path(fetch(filename=CONFIG, revision=revision)).parent  # named by the commit
        fetch(filename=WEIGHTS, revision=folder.name)
    if revision != folder.name:
        print(f"{PREFIX}{repository}@{revision} is {pinned(text, folder)}", file=sys.stderr)
    return folder


@contextmanager
def hub_errors(repository: str, revision: str) -> Iterator[None]:
    """What goes wrong with the Hub, in one line. Import huggingface_hub only after `need_packages`."""
    from huggingface_hub import errors

    try:
        yield
    except errors.GatedRepoError as error:
        raise UsageError(f"{repository} is open on request only. Ask for access on its page, then log in.") from error
    except errors.RepositoryNotFoundError as error:
        raise UsageError(
            f"The Hub has no model '{repository}', or it is private. Check the name, or log in: hf auth login"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise UsageError(
            f"{repository} has no revision '{revision}'. Name a branch, a tag or a whole commit."
        ) from error
    except errors.LocalEntryNotFoundError as error:
        raise UsageError(
            f"{repository}@{revision} is not in the local cache, and the Hub cannot be asked. "
            "Connect, and leave out HF_HUB_OFFLINE."
        ) from error
    except errors.EntryNotFoundError as error:
        raise UsageError(f"{repository}@{revision} is no model of bagcert: it lacks {CONFIG} or {WEIGHTS}.") from error
    except (OSError, ValueError, RuntimeError, errors.HfHubHTTPError) as error:
        if isinstance(error, UsageError):
            raise
        why = error.__cause__ if isinstance(error.__cause__, Exception) else error
        code = error.response.status_code if isinstance(error, errors.HfHubHTTPError) else 0
        cure = "Log in by `hf auth login`, with a token that may do this" if code in (401, 403) else "Try again later"
        raise UsageError(f"The Hub refuses {repository}@{revision} ({first_line(why)}). {cure}.") from error
