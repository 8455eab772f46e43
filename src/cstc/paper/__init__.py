"""The paper, section by section; and its loss, carried on to the exact cost."""
