"""Cover trained ImageNet networks by masks, and certify real photographs."""

from studies.common.commands import call
from studies.covered.command import check, run, times
from studies.covered.page import page

if __name__ == "__main__":
    call(run, times, check, page)
