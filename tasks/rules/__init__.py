"""Decisions without I/O: reading, checking and cutting; the most tested room of the house."""
