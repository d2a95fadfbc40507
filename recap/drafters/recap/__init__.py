"""The Recap method: `reference` says what it does, the other modules do it fast."""
