"""Odradek's schema registry with the clients of other authors."""
