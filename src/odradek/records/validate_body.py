"""The records inside a batch, looked at one by one: for internal and compacted topics.

Kafka looks into every batch; here two kinds are worth the time. A client may write to an internal
topic too, and what a coordinator cannot load keeps its groups from being served. A record without
a key cannot be compacted.
"""

from __future__ import annotations

from itertools import islice

from odradek.config.log_config import LogConfig
from odradek.errors import ErrorCode, KafkaError, RecordsRefused
from odradek.records.batch import BatchHeader
from odradek.records.recompress import needs_recompression, recompress
from odradek.records.record import CorruptRecord, iter_records
from odradek.records.validate import BatchRules, Writable, validate_batch

UNPACKED_BYTES_MAX = 16 * 1024 * 1024
RECORDS_MAX = 100_000


def validate_body(batch: Writable, config: LogConfig, now_ms: int, where: str = "") -> Writable:
    """`batch`, whose records are all there, in their places, in the topic's compression.

    Raises KafkaError: what `validate_batch` finds, INVALID_RECORD, as RecordsRefused where records
    of a compacted topic have no key, and MESSAGE_TOO_LARGE for more than is looked at. `where`
    names the partition.
    """
    batch, fields = validate_batch(batch, BatchRules(config, transactional=True), now_ms)
    header = BatchHeader._make(fields)
    if header.record_count > RECORDS_MAX:
        raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"more than {RECORDS_MAX} records")
    keyless: list[int] = []
    try:
        records = islice(iter_records(batch, UNPACKED_BYTES_MAX), header.record_count)
        for delta, record in enumerate(records):
            if record.offset != delta:
                raise CorruptRecord(f"record {delta} has the offset delta {record.offset}")
            if record.key is None:
                keyless.append(delta)
    except CorruptRecord as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from error
    if keyless and config.cleanup_compact:
        what = f"Compacted topic cannot accept message without key in topic partition {where}"
        raise RecordsRefused(dict.fromkeys(keyless, what))
    return recompress(batch, config, now_ms) if needs_recompression(batch, config) else batch
