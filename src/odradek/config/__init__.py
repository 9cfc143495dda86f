"""Configs as data: Kafka's names, types, defaults and rules, with documentation in our own
words.
"""
