"""Log compaction: of each key the newest record stays, offsets stay what they are.

The broker selects a log (`selection`) and swaps its new segments in (`segment_swap`). Batches are
opened in a worker process only (`process`, `worker`, `worker_protocol`). The worker reads the dirty
part of the log into an offset map (`offset_map`), copies the records that stay (`batch_filter`,
`record_spans`) into one new segment for each group of old ones (`cleaning`, `output`), and reports
that. Transactions are in `transactions`.
"""
