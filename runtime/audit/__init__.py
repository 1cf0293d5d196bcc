"""Derived numbers held against what runs."""
