"""What the current splits of a row still need: found by pointers, or by bits where tables stay small."""
