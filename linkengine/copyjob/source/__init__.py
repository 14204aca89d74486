"""The source side of the copy job: locates leaders, fetches records and plans what is appended to the mirror."""
