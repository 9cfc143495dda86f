"""DescribeAcls over the wire: security is disabled."""

from __future__ import annotations

import pytest

from odradek.errors import ErrorCode
from odradek.protocol.messages.describe_acls_request import DescribeAclsRequest
from testkit.wire import WireClient


@pytest.mark.parametrize("version", range(1, 4))
def test_every_version_says_that_security_is_disabled(client: WireClient, version: int) -> None:
    request = DescribeAclsRequest(resource_type_filter=1, operation=1, permission_type=1)
    response = client.call(request, version)
    assert response.error_code == ErrorCode.SECURITY_DISABLED
    assert response.error_message
    assert response.resources == []
