"""Cover trained ImageNet networks by masks, and certify real photographs."""

from studies.common.commands import call
from studies.covered.command import check, run, times
from studies.covered.page import page
from studies.covered.trained import train

if __name__ == "__main__":
    call(run, train, times, check, page)
