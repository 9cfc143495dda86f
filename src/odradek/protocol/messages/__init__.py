"""Generated: one module a message, imported where the message is wanted."""
