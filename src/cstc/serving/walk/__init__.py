"""What the current splits of a row still need: found by compiled code, or in Python by pointers or by bits."""
