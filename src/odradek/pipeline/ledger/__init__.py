"""Ledger of an ingest: the offsets of every committed batch, and the checks on them."""
