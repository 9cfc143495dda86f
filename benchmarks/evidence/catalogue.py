"""All experiments, in the order in which `make evidence` runs them."""

from __future__ import annotations

from benchmarks.evidence import (
    cluster_growth,
    clusters,
    compared,
    further,
    histories,
    kills,
    leader_kills,
    measured,
    paper,
    planted_bugs,
    process_faults,
    registry,
    simulations,
    time_slices,
)
from benchmarks.evidence.experiment import Experiment

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        compared.FirstTable(),
        further.EqualSockets(),
        compared.IdempotentRows(),
        compared.Commits(),
        compared.Transactions(),
        compared.GroupJoin(),
        further.FurtherRows(),
        further.CProgram(),
        further.Profile(),
        measured.Partitions(),
        measured.FirstPaper(),
        measured.Scaling(),
        measured.Startup(),
        measured.GroupLoading(),
        paper.ZooKeeperCommits(),
        measured.Compaction(),
        measured.CompactionBeside(),
        kills.SigKills(),
        kills.CompactionKills(),
        kills.Delivery(),
        kills.PipelineKills(),
        histories.Histories(),
        histories.KafkaHistories(),
        histories.Mutants(),
        leader_kills.LeaderKills(),
        process_faults.ProcessFaults(),
        clusters.ClusterRows(),
        clusters.ClusterPartitions(),
        clusters.ClusterFailover(),
        clusters.ClusterDrain(),
        clusters.ClusterCatchUp(),
        cluster_growth.ClusterGrowth(),
        cluster_growth.ClusterGrowthMeasured(),
        time_slices.TimeSlices(),
        registry.RegistryReads(),
        registry.RegistryStart(),
        registry.RegistryVerdicts(),
        registry.RegistryKills(),
        simulations.Simulations(),
        planted_bugs.PlantedBugs(),
    )
}
