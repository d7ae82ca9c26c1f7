"""Several answers: the k best classes, labels of pictures with several objects, a class for every pixel."""

from studies.common.commands import call
from studies.labels.command import page, top, trial

if __name__ == "__main__":
    call(top, trial, page)
