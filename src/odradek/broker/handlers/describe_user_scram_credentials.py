"""DescribeUserScramCredentials (50), version 0: no user has credentials.

Credentials cannot be created, because AlterUserScramCredentials (51) is not implemented, which is a
deviation from Kafka. A request for all users gets an empty list. Each named user is
RESOURCE_NOT_FOUND, and a user named twice is DUPLICATE_RESOURCE, as from a Kafka broker without
credentials. Kafka's tool for the quotas of users also sends this request and fails if it is not
served. KIP-554.
"""

from __future__ import annotations

from collections import Counter

from odradek.broker.requests.context import RequestContext, Services
from odradek.broker.requests.elements import each
from odradek.errors import ErrorCode
from odradek.protocol.messages.describe_user_scram_credentials_request import (
    DescribeUserScramCredentialsRequest,
)
from odradek.protocol.messages.describe_user_scram_credentials_response import (
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from odradek.results import Result


def handle(
    services: Services, context: RequestContext, request: DescribeUserScramCredentialsRequest
) -> Result[DescribeUserScramCredentialsResponse]:
    times = Counter(user.name for user in request.users or ())
    results = each(lambda user: _without(*user), times.items())
    return results.then(
        lambda results: DescribeUserScramCredentialsResponse(error_message="", results=results)
    )


def _without(name: str, times: int) -> DescribeUserScramCredentialsResult:
    if times > 1:
        return DescribeUserScramCredentialsResult(
            name, ErrorCode.DUPLICATE_RESOURCE, f"The user {name} is named {times} times"
        )
    return DescribeUserScramCredentialsResult(
        name, ErrorCode.RESOURCE_NOT_FOUND, f"The user {name} has no SCRAM credentials"
    )
