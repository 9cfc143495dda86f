"""A program that reads a topic as a member of a group in ZooKeeper, and a harness that kills it."""
