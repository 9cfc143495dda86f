"""Differences that stay, with the reason. The key is a pattern of ``scenario@version/step/field``
paths (shell wildcards); a pattern that matches nothing in a whole run is reported.
"""

from __future__ import annotations

_LATER = "a version that Kafka got after 4.1, whose range Odradek serves"
_FEATURES = "Odradek has none of these features and advertises none"
_NO_TIERS = "Odradek has no tiered storage, and refuses its configs"
_NO_FOLLOWERS = "throttles replication, which a single node has none of; refused"
_ELR = "Kafka's eligible leader replicas make it a dynamic default of the cluster"
_SAYS_WHY = "says why; Kafka leaves the message out"

ALLOWED: dict[str, str] = {
    "api_versions.*: list_offsets/max": _LATER,
    "api_versions.*: offset_commit/max": _LATER,
    "api_versions.*: offset_fetch/max": _LATER,
    "api_versions.*: describe_log_dirs/max": _LATER,
    "api_versions.*: supported features": _FEATURES,
    "api_versions.*: finalized features": _FEATURES,
    "*/configs/[remote.*": _NO_TIERS,
    "*/configs/[local.retention.*": _NO_TIERS,
    "*/configs/[leader.replication.throttled.replicas]": _NO_FOLLOWERS,
    "*/configs/[follower.replication.throttled.replicas]": _NO_FOLLOWERS,
    "*/configs/[min.insync.replicas]/config_source": _ELR,
    "produce.*/error_message": _SAYS_WHY,
    "metadata.creating@*": "auto-created topics are usable on the first send",
    "metadata.by_id@*/zero id/*": "Kafka fails itself: UNKNOWN_SERVER_ERROR",
}
