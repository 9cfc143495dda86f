"""CreateAcls (30), versions 1-3: SECURITY_DISABLED for each, as from a Kafka broker without an
authorizer.
"""

from __future__ import annotations

from odradek.broker.requests.context import RequestContext, Services
from odradek.errors import ErrorCode
from odradek.protocol.messages.create_acls_request import CreateAclsRequest
from odradek.protocol.messages.create_acls_response import AclCreationResult, CreateAclsResponse
from odradek.slicing import Turns, begun


@begun
async def handle(
    services: Services, context: RequestContext, request: CreateAclsRequest
) -> CreateAclsResponse:
    return CreateAclsResponse(results=await Turns().map(_refused, request.creations))


def _refused(_: object) -> AclCreationResult:
    return AclCreationResult(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
