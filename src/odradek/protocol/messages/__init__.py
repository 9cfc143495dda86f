"""Generated: one module for each message, imported where the message is needed."""
