"""Measurements: the same decoders over text and images, with the commands that remake each figure."""
