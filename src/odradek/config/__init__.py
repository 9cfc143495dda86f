"""Configs as tables: Kafka's names, types, defaults and rules, with documentation of our own."""
