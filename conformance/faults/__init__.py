"""Faults from a seed on three broker processes and a ZooKeeper, with checked histories.

`python -m conformance.faults --seed 7` starts the cluster and clients of other authors, plays the
faults of the seed, and analyses the history (`conformance.histories`). The brokers, ZooKeeper and
the clients have a network namespace each if the machine allows it, and TCP proxies between them
otherwise. docs/histories.md describes the faults.
"""
