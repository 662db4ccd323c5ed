"""Fetch published data sets from where they lie."""
