"""Sections of the report of a plan that serves."""
