"""CreateAcls (30), versions 1-3: no ACL can be created.

The result of each creation is SECURITY_DISABLED, as from a Kafka broker without an authorizer.
"""

from __future__ import annotations

from odradek.broker.requests.context import RequestContext, Services
from odradek.broker.requests.elements import each
from odradek.errors import ErrorCode
from odradek.protocol.messages.create_acls_request import CreateAclsRequest
from odradek.protocol.messages.create_acls_response import AclCreationResult, CreateAclsResponse
from odradek.results import Result


def handle(
    services: Services, context: RequestContext, request: CreateAclsRequest
) -> Result[CreateAclsResponse]:
    return each(_refused, request.creations).then(
        lambda results: CreateAclsResponse(results=results)
    )


def _refused(_: object) -> AclCreationResult:
    return AclCreationResult(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
