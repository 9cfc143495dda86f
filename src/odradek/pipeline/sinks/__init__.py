"""Where a batch's rows become durable: Delta or Parquet tables, each commit exactly once."""
