"""Time our models and every rival in one run, and set their speed against what they prove."""

from benchmarks.trade.command import trade
from studies.common.commands import call

if __name__ == "__main__":
    call(trade)
