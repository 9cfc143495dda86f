"""CreateAcls over the wire: security is disabled."""

from __future__ import annotations

import pytest

from odradek.errors import ErrorCode
from odradek.protocol.messages.create_acls_request import AclCreation, CreateAclsRequest
from testkit.wire import WireClient


@pytest.mark.parametrize("version", range(1, 4))
def test_every_version_refuses_each_acl(client: WireClient, version: int) -> None:
    acl = AclCreation(2, "t", 3, "User:a", "*", 3, 3)
    response = client.call(CreateAclsRequest([acl, acl]), version)
    assert [each.error_code for each in response.results] == [ErrorCode.SECURITY_DISABLED] * 2
    assert all(each.error_message for each in response.results)
