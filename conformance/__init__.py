"""Clients and tools that nobody here wrote, driven against a running broker, beside Apache Kafka."""
