"""A checker of histories, in the manner of Jepsen's Kafka workload.

Concurrent clients, each a process of its own, send, poll and run transactions while a nemesis
kills and pauses the broker, the clients and the network between them, all from one seed
(`run.py`). What they saw is a history of JSON lines (`history.py`). The analysis is pure: a
history goes in, anomalies come out, each with whether Kafka allows it by design (`analysis.py`).

    python -m conformance.histories.run --start odradek --seconds 60 --seed 7
    python -m conformance.histories.run --bootstrap-server HOST:PORT --seconds 30
    python -m conformance.histories.check HISTORY.jsonl
"""
