"""Released third-party test suites, run without modification."""
