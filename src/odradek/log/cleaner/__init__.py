"""Log compaction: of each key the newest record stays, offsets stay what they are.

The broker chooses a log (`choose`) and swaps the results in (`swap`); everything in between, which
opens batches, happens in a worker process (`process`, `worker`): it reads the dirty part of the
log into an offset map (`offset_map`), copies what stays (`batch_filter`, `bodies`) into one new
segment for each group of old ones (`cleaning`, `output`) and says so. Transactions are in
`transactions`.
"""
