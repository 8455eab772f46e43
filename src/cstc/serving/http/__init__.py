"""The service: predictions, batches, ask and tell over HTTP."""

from .app import Limits, create_app

__all__ = ["Limits", "create_app"]
