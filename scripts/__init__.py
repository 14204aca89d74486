"""What `make setup` runs: unpack front-end assets, make sure that system programs are there. Standard library only."""
