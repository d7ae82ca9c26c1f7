"""This answer or an alert: the shipped models at several rates of false alerts."""

from studies.common.commands import call
from studies.detection.command import cards, measure, page

if __name__ == "__main__":
    call(measure, page, cards)
