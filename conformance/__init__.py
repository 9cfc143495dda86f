"""Clients and tools that nobody here wrote, driven against a broker, beside Apache Kafka."""
