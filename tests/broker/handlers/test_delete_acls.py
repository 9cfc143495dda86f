"""DeleteAcls over the wire: security is disabled."""

from __future__ import annotations

import pytest

from odradek.errors import ErrorCode
from odradek.protocol.messages.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
from testkit.wire import WireClient


@pytest.mark.parametrize("version", range(1, 4))
def test_every_version_refuses_each_filter(client: WireClient, version: int) -> None:
    any_acl = DeleteAclsFilter(1, None, 3, None, None, 1, 1)
    response = client.call(DeleteAclsRequest([any_acl, any_acl]), version)
    assert [each.error_code for each in response.filter_results] == [
        ErrorCode.SECURITY_DISABLED
    ] * 2
    assert all(each.error_message for each in response.filter_results)
    assert all(each.matching_acls == [] for each in response.filter_results)
