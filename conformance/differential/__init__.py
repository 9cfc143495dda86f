"""The same wire requests to Odradek and to Apache Kafka, their answers compared field by field.

    python -m conformance.differential                       starts both brokers, all scenarios
    python -m conformance.differential --only produce        those whose names contain the word
    python -m conformance.differential --kafka HOST:PORT --odradek HOST:PORT

A scenario is a function that sends requests in a `Session`; it is run against both brokers with
the same topic and group names, at the lowest, a middle and the highest version of its API. What
differs is in `allowed`, with the reason, or it is a failure.
"""
