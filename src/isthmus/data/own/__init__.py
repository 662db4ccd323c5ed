"""Data of one's own: tables, arrays and folders."""
