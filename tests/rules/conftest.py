"""Property tests draw the same cases on every machine, and are not timed: the machine may be busy."""

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "rules",
    deadline=None,
    max_examples=int(os.environ.get("BAGCERT_EXAMPLES", "60")),  # `make mutants` asks for fewer
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("rules")
