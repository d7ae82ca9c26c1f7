"""Property tests draw the same cases on every machine, and are not timed: the machine may be busy."""

from hypothesis import settings

settings.register_profile("rules", deadline=None, max_examples=60, derandomize=True)
settings.load_profile("rules")
