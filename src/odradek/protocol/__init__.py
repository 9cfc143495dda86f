"""Kafka's wire protocol: messages to bytes and back, headers, frames. Pure: no sockets."""
