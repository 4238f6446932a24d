"""Plans as files that people can read and edit: writing, reading, and the cache that `-lms_plan` names."""
