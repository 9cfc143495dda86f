"""Entry points: jobs that read, transform, write and checkpoint."""
