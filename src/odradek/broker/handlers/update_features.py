"""UpdateFeatures (57), versions 0-2: finalize levels of the cluster's features, or only check them.

All updates succeed or none does. If one is refused, its error is the error of the whole request
(INVALID_UPDATE_VERSION). Up to version 1 a response without error lists each feature. As in Kafka,
`allow_downgrade` of version 0 has no effect. KIP-584, KIP-778, KIP-1022.

Deviation from Kafka: a cluster has only the features of `odradek.metadata.features`. The level of
metadata.version is stored and returned, and has no effect.
"""

from __future__ import annotations

from odradek.broker.requests.context import RequestContext, Services
from odradek.errors import ErrorCode
from odradek.metadata.features import FeatureUpdate
from odradek.protocol.messages.update_features_request import UpdateFeaturesRequest
from odradek.protocol.messages.update_features_response import (
    UpdatableFeatureResult,
    UpdateFeaturesResponse,
)
from odradek.result_tasks import in_task
from odradek.results import Result

RESULTS_UP_TO = 1


@in_task
async def handle(
    services: Services, context: RequestContext, request: UpdateFeaturesRequest
) -> Result[UpdateFeaturesResponse]:
    updates = [
        FeatureUpdate(each.feature, each.max_version_level, each.upgrade_type)
        for each in request.feature_updates
    ]
    error = await services.controller.update_features(updates, validate_only=request.validate_only)
    if error is not None:
        message = (
            "The update failed for all features since the following feature had an error: "
            f"{error.message}"
        )
        return Result(UpdateFeaturesResponse(error_code=error.code, error_message=message))
    results = []
    if context.api_version <= RESULTS_UP_TO:
        results = [
            UpdatableFeatureResult(update.name, ErrorCode.NONE, "NONE") for update in updates
        ]
    return Result(UpdateFeaturesResponse(error_message=None, results=results))
