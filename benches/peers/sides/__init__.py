"""The suites of the race, a file each, and what they share."""
