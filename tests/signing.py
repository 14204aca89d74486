"""The signer and the secrets of tests that have no console: in the product both come from the credentials keys."""

from base64 import urlsafe_b64encode

from linkengine.domain.signatures import Signer

SIGNER = Signer((bytes(range(32)),))
OTHER = Signer((bytes(range(1, 33)),))  # of another installation
SECRETS = (urlsafe_b64encode(bytes(range(2, 34))).decode(),)  # a credentials key, from which copy workers get theirs
