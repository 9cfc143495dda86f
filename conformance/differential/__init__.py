"""A comparison of the responses of Odradek and Apache Kafka to the same requests, field by field.

Start both brokers and run all scenarios.

    python -m conformance.differential

Run the scenarios whose names contain a word.

    python -m conformance.differential --only produce

Use brokers that are already running.

    python -m conformance.differential --kafka HOST:PORT --odradek HOST:PORT

A scenario is a function that sends requests in a `Session`. It is run against both brokers with
the same topic and group names, at the lowest, a middle and the highest version of its API. Each
difference must be in `allowed`, with its reason. Other differences are failures.
"""
