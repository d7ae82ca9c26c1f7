"""Cover trained ImageNet networks by masks, and certify real photographs."""

from studies.common.commands import call
from studies.covered.command import check, page, run

if __name__ == "__main__":
    call(run, check, page)
