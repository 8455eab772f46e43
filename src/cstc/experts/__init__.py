"""The default method, step by step as in docs/beyond-the-paper.md."""
