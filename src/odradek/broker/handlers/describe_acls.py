"""DescribeAcls (29), versions 1-3: no ACLs exist, and the error is SECURITY_DISABLED."""

from __future__ import annotations

from odradek.broker.requests.context import RequestContext, Services
from odradek.errors import ErrorCode
from odradek.protocol.messages.describe_acls_request import DescribeAclsRequest
from odradek.protocol.messages.describe_acls_response import DescribeAclsResponse
from odradek.results import Result


def handle(
    services: Services, context: RequestContext, request: DescribeAclsRequest
) -> Result[DescribeAclsResponse]:
    return Result(
        DescribeAclsResponse(
            error_code=ErrorCode.SECURITY_DISABLED,
            error_message="No Authorizer is configured on the broker",
        )
    )
