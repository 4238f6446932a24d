"""Prototxt files: parsing with lines in errors, dialects of forks, upgrades of old files."""
