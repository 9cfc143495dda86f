"""DeleteAcls (31), versions 1-3: no ACLs exist.

The result of each filter is SECURITY_DISABLED, as from a Kafka broker without an authorizer.
"""

from __future__ import annotations

from odradek.broker.requests.context import RequestContext, Services
from odradek.broker.requests.elements import each
from odradek.errors import ErrorCode
from odradek.protocol.messages.delete_acls_request import DeleteAclsRequest
from odradek.protocol.messages.delete_acls_response import (
    DeleteAclsFilterResult,
    DeleteAclsResponse,
)
from odradek.results import Result


def handle(
    services: Services, context: RequestContext, request: DeleteAclsRequest
) -> Result[DeleteAclsResponse]:
    return each(_refused, request.filters).then(
        lambda results: DeleteAclsResponse(filter_results=results)
    )


def _refused(_: object) -> DeleteAclsFilterResult:
    return DeleteAclsFilterResult(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
