"""The destination side of the copy job: appends batches and gap fills to the mirror, and keeps its producer state."""
