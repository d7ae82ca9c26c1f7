"""`python -m studies`: one command per study."""

from pathlib import Path

from studies.common.commands import dispatch

if __name__ == "__main__":
    dispatch(Path(__file__).parent)
