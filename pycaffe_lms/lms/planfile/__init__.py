"""Write and read plans as text that people can edit, and cache them in the file of `-lms_plan`."""
