"""A checker of histories, modelled on Jepsen's Kafka workload.

Concurrent clients send, poll and run transactions, each in its own process. At the same time a
nemesis kills and pauses the broker and the clients, and disturbs the network between them. One
seed determines both (`run.py`). The clients record a history of JSON lines (`history.py`). The
analysis is a pure function from a history to anomalies (`analysis.py`). Each anomaly states whether
Kafka allows it by design.

Start a broker and run the workload against it.

    python -m conformance.histories.run --start odradek --seconds 60 --seed 7

Run the workload against a running broker.

    python -m conformance.histories.run --bootstrap-server HOST:PORT --seconds 30

Check a recorded history.

    python -m conformance.histories.check HISTORY.jsonl
"""
