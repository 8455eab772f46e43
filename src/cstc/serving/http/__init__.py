"""The service: predictions, batches, ask and tell over HTTP."""
