"""DescribeUserScramCredentials (50), version 0: nobody has any, for nothing here makes them.

Nothing is listed for all users; each user named is RESOURCE_NOT_FOUND, and one named twice
DUPLICATE_RESOURCE, as from a Kafka broker that was given no credentials. Kafka's tool for the
quotas of users asks for both and fails as a whole where this is not served. KIP-554.

Deviation from Kafka: AlterUserScramCredentials (51) is not served.
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
