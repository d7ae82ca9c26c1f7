"""Compare our models with their rivals: train and certify them, fill docs/comparison.md, check against ART."""

from studies.common.commands import call
from studies.rivals.art import art
from studies.rivals.compare import compare
from studies.rivals.run import run

if __name__ == "__main__":
    call(compare, run, art)
