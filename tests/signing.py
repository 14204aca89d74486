"""The signer of tests that have no console: what the settings derive from the credentials keys in the product."""

from linkengine.domain.signatures import Signer

SIGNER = Signer((bytes(range(32)),))
OTHER = Signer((bytes(range(1, 33)),))  # of another installation
