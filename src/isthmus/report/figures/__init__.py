"""The figures of a report: a file each, with its numbers, its form on the page and in print."""
