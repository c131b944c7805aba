"""Renderings of records for people: text now, pages later. No logic, only words."""
