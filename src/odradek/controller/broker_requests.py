"""The requests of brokers in the protocol's form, as the active controller executes them."""

from __future__ import annotations

import logging

from odradek.controller.alter_partition import AlterPartition, AlterPartitionResult
from odradek.controller.cluster_controller import ClusterController
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import BrokerId
from odradek.metadata.image import LeaderRecoveryState
from odradek.protocol.messages import alter_partition_response, assign_replicas_to_dirs_response
from odradek.protocol.messages.alter_partition_request import AlterPartitionRequest, PartitionData
from odradek.protocol.messages.alter_partition_response import AlterPartitionResponse
from odradek.protocol.messages.assign_replicas_to_dirs_request import (
    AssignReplicasToDirsRequest,
)
from odradek.protocol.messages.assign_replicas_to_dirs_response import (
    AssignReplicasToDirsResponse,
)
from odradek.protocol.messages.broker_heartbeat_request import BrokerHeartbeatRequest
from odradek.protocol.messages.broker_heartbeat_response import BrokerHeartbeatResponse
from odradek.protocol.messages.drain_broker_request import DrainBrokerRequest
from odradek.protocol.messages.drain_broker_response import DrainBrokerResponse, RemainingTopic
from odradek.protocol.messages.finish_deletions_request import FinishDeletionsRequest
from odradek.protocol.messages.finish_deletions_response import FinishDeletionsResponse
from odradek.protocol.messages.metadata_feed_request import MetadataFeedRequest
from odradek.protocol.messages.metadata_feed_response import MetadataFeedResponse
from odradek.protocol.messages.metadata_image_request import MetadataImageRequest
from odradek.protocol.messages.metadata_image_response import MetadataImageResponse
from odradek.result_tasks import run
from odradek.results import Result

logger = logging.getLogger(__name__)


class BrokerRequests:
    """Translates between the protocol and a `ClusterController`. Errors are in the responses."""

    def __init__(self, controller: ClusterController) -> None:
        self._controller = controller

    def poll(self, request: MetadataFeedRequest) -> Result[MetadataFeedResponse]:
        return self._controller.feed.poll(request)

    def image_chunk(self, request: MetadataImageRequest) -> Result[MetadataImageResponse]:
        return self._controller.feed.image_chunk(request)

    def alter_partition(self, request: AlterPartitionRequest) -> Result[AlterPartitionResponse]:
        """Change ISRs. The request has the fields of version 3."""
        return run(self._alter_partition(request))

    def broker_heartbeat(self, request: BrokerHeartbeatRequest) -> Result[BrokerHeartbeatResponse]:
        """Take the state of a broker, and report whether it may shut down."""
        return run(self._broker_heartbeat(request))

    def assign_replicas_to_dirs(
        self, request: AssignReplicasToDirsRequest
    ) -> Result[AssignReplicasToDirsResponse]:
        """Take the log directories of a broker's replicas."""
        return run(self._assign_replicas_to_dirs(request))

    def finish_deletions(self, request: FinishDeletionsRequest) -> Result[FinishDeletionsResponse]:
        """Take the report that a broker has removed its logs of deleted topics."""
        return run(self._finish_deletions(request))

    def drain_broker(self, request: DrainBrokerRequest) -> Result[DrainBrokerResponse]:
        """Move the leaderships of a broker away, or permit them again."""
        return run(self._drain_broker(request))

    async def _drain_broker(self, request: DrainBrokerRequest) -> Result[DrainBrokerResponse]:
        """Begin the next step when the new leaders have applied the last one.

        A partition is without a leader for the time of one step only.
        """
        broker, drained = BrokerId(request.broker_id), request.drained
        try:
            step = await self._controller.drain_broker(broker, drained, is_first=True)
            while not step.is_last:
                step = await self._controller.drain_broker(broker, drained, is_first=False)
        except KafkaError as error:
            return Result(DrainBrokerResponse(error.code, error.message))
        topics: dict[str, RemainingTopic] = {}
        for name, number in step.remaining:
            topics.setdefault(name, RemainingTopic(name)).partitions.append(number)
        return Result(DrainBrokerResponse(remaining=list(topics.values())))

    async def _finish_deletions(
        self, request: FinishDeletionsRequest
    ) -> Result[FinishDeletionsResponse]:
        try:
            await self._controller.deletions_finished(
                BrokerId(request.broker_id), request.broker_epoch, request.topic_ids
            )
        except KafkaError as error:
            return Result(FinishDeletionsResponse(error.code))
        return Result(FinishDeletionsResponse())

    async def _assign_replicas_to_dirs(
        self, request: AssignReplicasToDirsRequest
    ) -> Result[AssignReplicasToDirsResponse]:
        directories = {
            (topic.topic_id, partition.partition_index): directory.id
            for directory in request.directories
            for topic in directory.topics
            for partition in topic.partitions
        }
        try:
            errors = await self._controller.assign_directories(
                BrokerId(request.broker_id), request.broker_epoch, directories
            )
        except KafkaError as error:
            return Result(AssignReplicasToDirsResponse(error_code=error.code))
        return Result(
            AssignReplicasToDirsResponse(
                directories=[
                    assign_replicas_to_dirs_response.DirectoryData(
                        directory.id,
                        [
                            assign_replicas_to_dirs_response.TopicData(
                                topic.topic_id,
                                [
                                    assign_replicas_to_dirs_response.PartitionData(
                                        each.partition_index,
                                        errors[topic.topic_id, each.partition_index],
                                    )
                                    for each in topic.partitions
                                ],
                            )
                            for topic in directory.topics
                        ],
                    )
                    for directory in request.directories
                ]
            )
        )

    async def _broker_heartbeat(
        self, request: BrokerHeartbeatRequest
    ) -> Result[BrokerHeartbeatResponse]:
        try:
            found = await self._controller.broker_heartbeat(
                BrokerId(request.broker_id),
                request.broker_epoch,
                wants_shutdown=request.want_shut_down,
                failed_directories=request.offline_log_dirs,
            )
        except KafkaError as error:
            return Result(BrokerHeartbeatResponse(error_code=error.code))
        return Result(
            BrokerHeartbeatResponse(
                is_caught_up=found.is_caught_up,
                is_fenced=found.is_fenced,
                should_shut_down=found.should_shut_down,
            )
        )

    async def _alter_partition(
        self, request: AlterPartitionRequest
    ) -> Result[AlterPartitionResponse]:
        broker = BrokerId(request.broker_id)
        try:
            changes = [
                (topic.topic_id, partition.partition_index, _change(request, partition))
                for topic in request.topics
                for partition in topic.partitions
            ]
            found = await self._controller.alter_partitions(broker, request.broker_epoch, changes)
        except KafkaError as error:
            return Result(AlterPartitionResponse(error_code=error.code))
        results = iter(found)
        topics = [
            alter_partition_response.TopicData(
                topic.topic_id,
                [_result(each.partition_index, next(results)) for each in topic.partitions],
            )
            for topic in request.topics
        ]
        return Result(AlterPartitionResponse(topics=topics))


def _change(request: AlterPartitionRequest, partition: PartitionData) -> AlterPartition:
    try:
        recovery = LeaderRecoveryState(partition.leader_recovery_state)
    except ValueError as error:
        state = partition.leader_recovery_state
        logger.warning(
            "refused AlterPartition of broker %d: there is no leader recovery state %d. The broker "
            "has a defect or another version",
            request.broker_id,
            state,
        )
        reason = f"There is no leader recovery state {state}."
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, reason) from error
    return AlterPartition(
        BrokerId(request.broker_id),
        request.broker_epoch,
        partition.leader_epoch,
        partition.partition_epoch,
        tuple((BrokerId(e.broker_id), e.broker_epoch) for e in partition.new_isr_with_epochs),
        recovery,
    )


def _result(number: int, result: AlterPartitionResult) -> alter_partition_response.PartitionData:
    response = alter_partition_response.PartitionData(number, result.error)
    after = result.partition
    if after is not None and result.error in (ErrorCode.NONE, ErrorCode.NEW_LEADER_ELECTED):
        response.leader_id = after.leader
        response.leader_epoch = after.leader_epoch
        response.isr = list(after.isr)
        response.leader_recovery_state = int(after.leader_recovery_state)
        response.partition_epoch = after.partition_epoch
    return response
