"""`odradek topic` against a cluster with a partition that has no leader."""

from __future__ import annotations

from odradek.testing import Cluster

from .conftest import Cli


def test_partition_without_a_leader_is_shown_without_offsets() -> None:
    with Cluster(2) as cluster:
        cluster.create_topic("pages", partitions=2, replicas=1)
        down = cluster.leader_of("pages", 0)
        assert down is not None
        (up,) = set(cluster.broker_ids) - {down}
        cluster.create_topic("safe")
        cluster.kill(down)
        cluster.broker(up).wait_until(lambda: cluster.leader_of("pages", 0) is None)
        cli = Cli(cluster.broker(up).bootstrap_servers)
        [topic] = cli.json("topic", "describe", "pages")
        by_number = {each["partition"]: each for each in topic["partitions"]}
        assert by_number[0]["leader"] is None
        assert (by_number[0]["start_offset"], by_number[0]["end_offset"]) == (None, None)
        assert by_number[1]["leader"] == up
        assert by_number[1]["end_offset"] == 0
        records = {each["topic"]: each["records"] for each in cli.json("topic", "list")}
        assert records == {"pages": None, "safe": 0}
        assert " -  " in cli.ok("topic", "describe", "pages")
