"""Name of the plugin in an asv.conf.json: ``"plugins": [".harness.integrations.asv_plugin"]``."""

__all__ = ["CheckoutEnvironment", "setup"]

from harness.integrations.asv.checkout import CheckoutEnvironment
from harness.integrations.asv.plugin import setup
