"""Log compaction: the newest record of each key is kept, and offsets do not change.

The broker selects a log (`selection`) and swaps in its new segments (`segment_swap`). Batches are
opened only in a worker process (`process`, `worker`, `worker_protocol`). The worker reads the dirty
part of the log into an offset map (`offset_map`). It copies the records to keep (`batch_filter`,
`record_spans`) into one new segment for each group of old ones (`cleaning`, `output`), and reports
each group. `transactions` tracks aborted transactions and markers.
"""
