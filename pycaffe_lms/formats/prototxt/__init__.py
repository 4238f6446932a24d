"""Parse prototxt files: line numbers in errors, dialects of forks, upgrades of old files."""
