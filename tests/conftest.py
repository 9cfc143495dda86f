"""Shared by all tests: seeds are printed, and hypothesis is bounded and reproducible."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "odradek",
    deadline=None,
    max_examples=60,
    print_blob=True,
    # What they say depends on the seed and on the machine, and not on whether the code is right.
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.filter_too_much,
        HealthCheck.large_base_example,
    ],
)
settings.load_profile("odradek")
