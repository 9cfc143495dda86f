"""Three ways to copy a topic: at most once, at least once, exactly once. See docs/delivery.md."""
