"""Recap: a training-free speculative decoder for vision-language models."""
