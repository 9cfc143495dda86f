"""Tests of odradek.log."""
