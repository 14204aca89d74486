"""The copy job: the loop that copies partitions inside a Spark task, and its submission."""
