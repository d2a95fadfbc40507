"""Recap, the method: memories, mixture, growth, learning. Read `reference` first."""
